// The C entry points of mails, which plugin/native/mail.py calls through ctypes.

#include <cstdint>
#include <string>

#include "bridge/copy_text.h"
#include "bridge/participants.h"
#include "bridge/stages/mails.h"

using horovod::paceline::CopyText;
using horovod::paceline::Get;
using horovod::paceline::Mail;
using horovod::paceline::Mails;

namespace {

int64_t Number(Mail::Outcome outcome) { return static_cast<int64_t>(outcome); }

}  // namespace

extern "C" {

// A mail among the ranks of a process set: its number, and this rank's in the set, the set's size and Horovod's limit;
// -1 and in `error` why not. Not collective.
int64_t horovod_paceline_mail_open(int32_t process_set, int32_t* rank, int32_t* size, double* limit_s, char* error,
                                   int64_t capacity) {
  std::string why;
  const auto number = Get<Mails>().Open(process_set, why);
  if (number < 0) {
    CopyText(why, error, capacity);
    return number;
  }
  const auto mail = Get<Mails>().Find(number);
  *rank = mail->rank();
  *size = mail->size();
  *limit_s = mail->limit_s();
  return number;
}

// All that follow are about a mail that was opened and not closed. The number of an operation, or -1: the mail has
// failed.
int64_t horovod_paceline_mail_send(int64_t mail, int32_t peer, int64_t tag, const void* data, int64_t bytes) {
  return Get<Mails>().Find(mail)->Send(peer, static_cast<uint64_t>(tag), data, static_cast<size_t>(bytes));
}

int64_t horovod_paceline_mail_receive(int64_t mail, int32_t peer, int64_t tag, void* data, int64_t bytes) {
  return Get<Mails>().Find(mail)->Receive(peer, static_cast<uint64_t>(tag), data, static_cast<size_t>(bytes));
}

// Waits for an operation, at most `limit_s`; 1: it is done, 0: not yet, -1: the mail has failed. From 1 and -1 on
// nobody touches its memory.
int64_t horovod_paceline_mail_wait(int64_t mail, int64_t operation, double limit_s) {
  return Number(Get<Mails>().Find(mail)->Wait(operation, limit_s));
}

// An operation was waited for in vain for so long: the mail fails.
void horovod_paceline_mail_give_up(int64_t mail, int64_t operation, double limit_s) {
  Get<Mails>().Find(mail)->GiveUp(operation, limit_s);
}

// This rank cannot go on: all ranks hear why, and the mail has failed.
void horovod_paceline_mail_alarm(int64_t mail, const char* text) { Get<Mails>().Find(mail)->Alarm(text); }

// Why the mail has failed. 1: because Horovod was shut down, 0: because something went wrong.
int64_t horovod_paceline_mail_why(int64_t mail, char* why, int64_t capacity) {
  const auto found = Get<Mails>().Find(mail);
  CopyText(found->Why(), why, capacity);
  return found->ShutDown() ? 1 : 0;
}

// Its number is nobody's from here on. What is in flight is given up, and all ranks hear of it.
void horovod_paceline_mail_close(int64_t mail) { Get<Mails>().Close(mail); }
}
