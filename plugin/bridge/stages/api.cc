// The C entry points of mails, which plugin/native/mail.py calls through ctypes.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/participants.h"
#include "bridge/stages/mails.h"

using horovod::paceline::CopyText;
using horovod::paceline::Get;
using horovod::paceline::Mail;
using horovod::paceline::Mails;

namespace {

// Throws std::invalid_argument: it was closed, maybe by another thread.
std::shared_ptr<Mail> Opened(int64_t number) {
  auto mail = Get<Mails>().Find(number);
  if (mail == nullptr) {
    throw std::invalid_argument("Mail " + std::to_string(number) + " is not open.");
  }
  return mail;
}

int64_t Number(Mail::Outcome outcome) { return static_cast<int64_t>(outcome); }

}  // namespace

extern "C" {

// A mail among the ranks of a process set: its number, and this rank's in the set, the set's size and Horovod's limit;
// -1 and in `error` why not. Not collective.
int64_t horovod_paceline_mail_open(int32_t process_set, int32_t* rank, int32_t* size, double* limit_s, char* error,
                                   int64_t capacity) try {
  std::string why;
  const auto number = Get<Mails>().Open(process_set, why);
  if (number < 0) {
    CopyText(why, error, capacity);
    return number;
  }
  const auto mail = Opened(number);
  *rank = mail->rank();
  *size = mail->size();
  *limit_s = mail->limit_s();
  return number;
}
PACELINE_CATCH(-1, error, capacity)

// All that follow are about a mail that was opened; they fail where it was closed. The number of an operation, or -1:
// the mail has failed.
int64_t horovod_paceline_mail_send(int64_t mail, int32_t peer, int64_t tag, const void* data, int64_t bytes) try {
  return Opened(mail)->Send(peer, static_cast<uint64_t>(tag), data, static_cast<size_t>(bytes));
}
PACELINE_CATCH(-1)

int64_t horovod_paceline_mail_receive(int64_t mail, int32_t peer, int64_t tag, void* data, int64_t bytes) try {
  return Opened(mail)->Receive(peer, static_cast<uint64_t>(tag), data, static_cast<size_t>(bytes));
}
PACELINE_CATCH(-1)

// Waits for an operation, at most `limit_s`; 1: it is done, 0: not yet, -1: the mail has failed. From 1 and -1 on
// nobody touches its memory.
int64_t horovod_paceline_mail_wait(int64_t mail, int64_t operation, double limit_s) try {
  return Number(Opened(mail)->Wait(operation, limit_s));
}
PACELINE_CATCH(-1)

// An operation was waited for in vain for so long: the mail fails.
void horovod_paceline_mail_give_up(int64_t mail, int64_t operation, double limit_s) try {
  Opened(mail)->GiveUp(operation, limit_s);
}
PACELINE_CATCH()

// This rank cannot go on: all ranks hear why, and the mail has failed.
void horovod_paceline_mail_alarm(int64_t mail, const char* text) try { Opened(mail)->Alarm(text); }
PACELINE_CATCH()

// Why the mail has failed. 1: because Horovod was shut down, 0: because something went wrong.
int64_t horovod_paceline_mail_why(int64_t mail, char* why, int64_t capacity) try {
  const auto found = Opened(mail);
  CopyText(found->Why(), why, capacity);
  return found->ShutDown() ? 1 : 0;
}
PACELINE_CATCH(-1)

// Its number is nobody's from here on. What is in flight is given up, and all ranks hear of it.
void horovod_paceline_mail_close(int64_t mail) try { Get<Mails>().Close(mail); }
PACELINE_CATCH()
}
