"""The table of events: effect of an event on training under each exchange, and the test of it.

Data only. docs/developers/events.md is made from it (events_page.py); a unit test refuses an empty cell and a test that
does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

WORKS, REFUSED, NOTHING = "works", "refused", "nothing to do"
ARMED, RESIDUAL = "sync, armed", "residual of a codec"
COLUMNS = ("sync", ARMED, "pipelined", "partial", "local", "split", RESIDUAL)
PYTORCH, KERAS = "PyTorch", "Keras, TensorFlow"


class Answer(NamedTuple):
    """One answer. `tests`: below integration_tests/, without parameters. `on`: its frameworks; "": all."""

    outcome: str
    what: str
    tests: tuple[str, ...]
    on: str = ""


Cell = tuple[Answer, ...]


class Event(NamedTuple):
    """One event: a word for tests, a heading, and the answer of each of COLUMNS."""

    word: str
    name: str
    cells: Mapping[str, Cell]


# Both test the cells that name them: the event, further updates, a drain, and the weights of one process.
_TORCH = "ranks/torch/test_event_table.py::test_as_one_process"
_KERAS = "ranks/keras/test_event_table.py::test_as_one_process"
_BOTH = (_TORCH, _KERAS)
_OTHER_RANKS = tuple(
    f"ranks/{one}/test_event_table.py::test_states_of_another_number_of_ranks" for one in ("torch", "keras")
)
_LACKED = (
    "ranks/keras/test_event_table.py::test_a_gradient_that_one_rank_lacks",
    "ranks/keras/test_event_table.py::test_a_gradient_that_one_rank_lacks_later",
)
_SKIPS = (
    *_BOTH,
    "ranks/torch/test_amp.py::test_overflow_on_one_rank_skips_the_step_on_all",
    "ranks/keras/test_optimizer.py::test_overflow_on_one_rank_skips_the_same_step_on_all",
)
_THROUGH = ("ranks/leaving/test_slow_rank.py::test_rank_that_is_through_takes_part_until_all_are",)
_KILLED = ("faults/test_dead_ranks.py::test_survivors_of_training_name_the_dead_rank",)
_STOPPED = ("faults/test_dead_ranks.py::test_a_rank_that_stops_is_named_after_the_limit",)
_FAILED = (
    "ranks/torch/test_events.py::test_weights_are_those_of_one_process",
    "ranks/keras/test_failed_steps.py::test_a_failed_pass_leaves_no_trace",
)
_CHANGES = "ranks/leaving/test_elastic_changes.py::test_weights_show_every_contribution_of_ranks_that_came_and_went"
_ELASTIC = (*_BOTH, "ranks/leaving/test_elastic.py::test_the_others_go_on_when_a_rank_is_killed")
_REPLACED = (_TORCH, "ranks/torch/test_replaced.py::test_parameters_replaced_by_others_of_another_length")
_IN_TURN = ("ranks/exchange/test_compiled_steps.py::test_turns_with_a_drain_between_them",)
_NO_TURN = ("ranks/exchange/test_compiled_steps.py::test_turns_without_a_drain_are_refused",)
_DIRECTLY = "ranks/torch/test_gradients.py::test_gradients_changed_in_flight_are_refused"
_APART = (
    "ranks/torch/test_twins.py::test_twins_never_share_a_gradient",
    "ranks/exchange/test_updates_kept_apart.py::test_twin_optimizers_keep_their_own_gradients",
)

_TWIN_TAPES = "ranks/exchange/test_updates_kept_apart.py::test_twin_tapes_and_then_twin_updates"


def _works(what: str, *tests: str, on: str = "") -> Answer:
    return Answer(WORKS, what, tests or _BOTH, on)


def _refused(what: str, *tests: str, on: str = "") -> Answer:
    return Answer(REFUSED, what, tests or _BOTH, on)


def _nothing(what: str, *tests: str, on: str = "") -> Answer:
    return Answer(NOTHING, what, tests or _BOTH, on)


_MISSING_IN_KERAS = _refused(
    "Ranks compare before the first step with these variables. From the beginning: an error on all ranks, at once. "
    "Later: on the rank that lacks it, after 600 s. Elastic jobs compare nothing; the stall report names the gradient.",
    *_LACKED,
    on=KERAS,
)
_NEW_IN_KERAS = _refused("Keras builds an optimizer for one list of variables and raises an error.", _KERAS, on=KERAS)
_FINAL_IN_KERAS = _nothing("apply() submits gradients and returns their answers: none can change.", _KERAS, on=KERAS)
_CHANGED = _refused(
    "The rank that changed it raises an error after the others have their results. Remedy: synchronize().",
    _TORCH,
    _DIRECTLY,
    on=PYTORCH,
)

EVENTS = (
    Event("accumulation", "A backward pass without a step (accumulation)", {
        "sync": (_works("Gradients are added up; the last pass submits the sums."),),
        ARMED: (_works("The step begins with the last pass.", _TORCH),),
        "pipelined": (_works("An accumulation is one update: its sums are in flight."),),
        "partial": (_works("An accumulation is one contribution to a round."),),
        "local": (_works("An accumulation is one update of this rank."),),
        "split": (
            _works("The last pass submits the sums.", _TORCH, on=PYTORCH),
            _works("The last pass submits the sums.", _KERAS, on=KERAS),
        ),
        RESIDUAL: (_nothing("Only submitted sums are encoded."),),
    }),
    Event("skipped_step", "A step that loss scaling skips", {
        "sync": (_works("Ranks decide on combined gradients: all skip the same step.", *_SKIPS),),
        ARMED: (_works("As sync; the step stays armed.", _TORCH),),
        "pipelined": (_works(
            "The update whose gradients overflowed is skipped, K - 1 steps later; updates in flight keep their scale.",
            *_BOTH, "ranks/pipelined/test_torch_features.py::test_grad_scaler_whose_scale_changes_meanwhile",
            "ranks/pipelined/test_keras.py::test_loss_scale_that_changes_meanwhile",
            "ranks/pipelined/test_tape.py::test_loss_scaling_whose_factor_changes",
        ),),
        "partial": (_refused(
            "Late gradients would have the scale of another step. Remedy: bfloat16.",
            *_BOTH, "ranks/pipelined/test_tape.py::test_loss_scaling_whose_factor_changes",
        ),),
        "local": (_refused("A rank that skips would make fewer updates than the others. Remedy: bfloat16."),),
        "split": (
            _works("Ranks tell each other of infinities; all skip the step, and no weights travel.", _TORCH,
                   on=PYTORCH),
            _works("Ranks exchange the number of infinities; all skip the step.", _KERAS,
                   "ranks/keras/test_split.py::test_an_overflow_on_one_rank_skips_the_step_on_all", on=KERAS),
        ),
        RESIDUAL: (_works(
            "All gradients of the step keep the residuals they had before it; these keep the scale of their step.",
            *_BOTH, "ranks/codecs/test_residuals_end.py::test_a_step_that_is_left_out_leaves_nothing",
        ),),
    }),
    Event("not_finite", "NaN or infinity without loss scaling", {
        "sync": (_works("The value reaches every rank, in its own element alone."),),
        ARMED: (_works("As sync.", _TORCH),),
        "pipelined": (_works("As sync, in the update that its gradient is for."),),
        "partial": (_works("As sync, in the round that its gradient is added to."),),
        "local": (_works("It stays on its rank until the next average, which gives it to all."),),
        "split": (
            _works("As sync: the weight that it is in has it on every rank.", _TORCH, on=PYTORCH),
            _works("As sync: the weight that it is in has it on every rank.", _KERAS, on=KERAS),
        ),
        RESIDUAL: (_works(
            "It stays visible, and never becomes a part of a residual: as after a skipped step.",
            *_BOTH, "ranks/codecs/test_torch.py::test_infinities_and_nan_stay_visible",
            "ranks/codecs/test_residuals_end.py::test_a_step_that_is_left_out_leaves_nothing",
        ),),
    }),
    Event("absent_on_one_rank", "A gradient that is absent on one rank", {
        "sync": (_works("The rank contributes zeros.", _TORCH, on=PYTORCH), _MISSING_IN_KERAS),
        ARMED: (_works("As sync; zeros keep the step alike.", _TORCH, on=PYTORCH), _MISSING_IN_KERAS),
        "pipelined": (_works("The rank contributes zeros.", _TORCH, on=PYTORCH), _MISSING_IN_KERAS),
        "partial": (
            _works("The rank contributes zeros, which count as its contribution.", _TORCH, on=PYTORCH),
            _MISSING_IN_KERAS,
        ),
        "local": (
            _works("Only this rank's update lacks it.", _TORCH, on=PYTORCH),
            _MISSING_IN_KERAS,
        ),
        "split": (
            _works("The rank contributes zeros.", _TORCH, on=PYTORCH),
            _MISSING_IN_KERAS,
        ),
        RESIDUAL: (
            _works("Zeros are encoded with the residual, which arrives then.", _TORCH, on=PYTORCH), _MISSING_IN_KERAS,
        ),
    }),
    Event("absent_on_all_ranks", "A gradient that is absent on all ranks", {
        "sync": (
            _works(
                "It stays None until a rank has one; afterwards zeros travel, or None again with "
                "find_unused_parameters=True.",
                _TORCH, "ranks/torch/test_unused.py::test_as_one_process", on=PYTORCH,
            ),
            _works("It stays None; another compiled step may have it later.", _KERAS, on=KERAS),
        ),
        ARMED: (_works("As sync.", _TORCH, "ranks/torch/test_unused.py::test_steps_are_armed_all_the_same"),),
        "pipelined": (
            _works("Zeros travel; find_unused_parameters=True is refused.", _TORCH,
                   "ranks/torch/test_unused.py::test_other_exchanges_refuse_to_ask", on=PYTORCH),
            _works("It stays None; another compiled step may have it after drain().", _KERAS, on=KERAS),
        ),
        "partial": (
            _works("Zeros travel; find_unused_parameters=True is refused.", _TORCH,
                   "ranks/torch/test_unused.py::test_other_exchanges_refuse_to_ask", on=PYTORCH),
            _works("It stays None; another compiled step may have it after drain().", _KERAS, on=KERAS),
        ),
        "local": (_works("It stays None, and its weight as it is.", *_BOTH,
                         "ranks/local/test_local.py::test_torch_frozen_types_and_unused_parameters"),),
        "split": (
            _works("It stays None until a rank has one, as sync.", _TORCH,
                   "ranks/torch/test_unused.py::test_as_one_process", on=PYTORCH),
            _works("It stays None; another compiled step may have it later.", _KERAS, on=KERAS),
        ),
        RESIDUAL: (_nothing("Nothing is encoded until a rank has a gradient."),),
    }),
    Event("frozen_and_thawed", "A parameter that is frozen or thawed", {
        "sync": (_works("It leaves the messages and comes back, on all ranks at once."),),
        ARMED: (_works("The step is aborted, negotiated, and armed again when steps are alike.", _TORCH),),
        "pipelined": (
            _works("Its gradients in flight are dropped, unless drain() came first; in a group drain() is demanded.",
                   _TORCH, "ranks/torch/test_late.py::test_an_unfrozen_parameter_gets_no_gradient_from_before",
                   on=PYTORCH),
            _works("After drain(), which is demanded.", _KERAS, *_IN_TURN, *_NO_TURN,
                   "ranks/exchange/test_compiled_steps.py::test_groups_of_a_step_after_a_freeze", on=KERAS),
        ),
        "partial": (
            _works("Late gradients wait in its send buffer until it is thawed or drained.", _TORCH, on=PYTORCH),
            _works("After drain(), which is demanded.", _KERAS, *_IN_TURN, *_NO_TURN, on=KERAS),
        ),
        "local": (_works("The next average leaves it as it is: all ranks have the same.", *_BOTH,
                         "ranks/local/test_local.py::test_torch_frozen_types_and_unused_parameters"),),
        "split": (
            _works("It contributes zeros that nobody uses; its owner stays.", _TORCH, on=PYTORCH),
            _works("Its owner stays.", _KERAS,
                   "ranks/keras/test_split.py::test_ranks_without_variables_and_frozen_variables", on=KERAS),
        ),
        RESIDUAL: (_nothing("The residual is kept, and added to its next gradient."),),
    }),
    Event("replaced_or_added", "A parameter that is replaced or added", {
        "sync": (_works("It takes part from zero_grad() on, also with another shape.", *_REPLACED, on=PYTORCH),
                 _NEW_IN_KERAS),
        ARMED: (_works("As sync; a plan without it merges the others.", _TORCH, on=PYTORCH), _NEW_IN_KERAS),
        "pipelined": (
            _works("Added at any time; replaced after drain(), which is demanded.", *_REPLACED,
                   "ranks/torch/test_replaced.py::test_replacements_in_flight_and_uncounted_ones_are_refused",
                   "ranks/torch/test_late.py::test_a_group_that_joins_a_pipeline_is_saved_and_drained_with_it",
                   on=PYTORCH),
            _NEW_IN_KERAS,
        ),
        "partial": (_works("After drain() its rounds start again.", *_REPLACED, on=PYTORCH), _NEW_IN_KERAS),
        "local": (_works("The next average has it.", *_REPLACED, on=PYTORCH), _NEW_IN_KERAS),
        "split": (
            _works("Replaced parameters keep their owner; added ones get one. If shards change, their state moves.",
                   *_REPLACED, on=PYTORCH),
            _NEW_IN_KERAS,
        ),
        RESIDUAL: (_works("The new parameter begins without one.",
                          *_REPLACED, on=PYTORCH), _NEW_IN_KERAS),
    }),
    Event("changed_after_submission", "A gradient that is changed after it was submitted", {
        "sync": (_CHANGED, _FINAL_IN_KERAS),
        ARMED: (_CHANGED, _FINAL_IN_KERAS),
        "pipelined": (_CHANGED, _FINAL_IN_KERAS),
        "partial": (_CHANGED, _FINAL_IN_KERAS),
        "local": (_works("Nothing was submitted: the update uses the changed gradient.", _TORCH, _DIRECTLY, on=PYTORCH),
                  _FINAL_IN_KERAS),
        "split": (
            _CHANGED,
            _FINAL_IN_KERAS,
        ),
        RESIDUAL: (_CHANGED, _FINAL_IN_KERAS),
    }),
    Event("second_optimizer", "A second optimizer, tape or thread, and equal names", {
        "sync": (_works(
            "Names carry the number of creation; equal names that were given are refused while both are in flight.",
            *_BOTH, "ranks/torch/test_twins.py::test_synchronous_twins_may_be_in_flight_at_the_same_time",
            "ranks/torch/test_gradients.py::test_a_name_in_use_by_another_optimizer_is_an_error_that_says_so",
            "ranks/keras/test_twins.py::test_twins_are_kept_apart",
        ),),
        ARMED: (_works("Operations outside the plan end the armed step, and are negotiated.", _TORCH,
                       "ranks/armed/test_fallback.py::test_other_operations_from_another_thread"),),
        "pipelined": (_works("Names carry the number of creation: each has its own gradients in flight.", *_BOTH,
                             *_APART, _TWIN_TAPES),),
        "partial": (_works("Names carry the number of creation: each has its own rounds.", *_BOTH, *_APART),),
        "local": (_works("Each averages its own weights.", *_BOTH,
                         "ranks/exchange/test_compiled_steps.py::test_turns_average_their_own_weights"),),
        "split": (
            _works("Names carry the number of creation: each has its own weights on their way.", _TORCH, on=PYTORCH),
            _works("Names carry the number of creation: each sends its own weights.", _KERAS, on=KERAS),
        ),
        RESIDUAL: (_works(
            "Residuals belong to an operation of one optimizer.", *_BOTH,
            "ranks/codecs/test_residuals_end.py::test_a_second_model_under_the_same_names_begins_with_nothing",
        ),),
    }),
    Event("other_collectives", "Evaluation, metrics and other collectives between", {
        "sync": (_works("They are exact."),),
        ARMED: (_works("They wait for the end of the step, or end it if a rank waits for them.", _TORCH,
                       "ranks/armed/test_fallback.py::test_other_operations_between_gradients"),),
        "pipelined": (_works("They are exact; real_weights() has the weights without a correction.", *_BOTH,
                             "ranks/pipelined/test_staleness_torch.py::test_updates_are_those_of_the_formulas"),),
        "partial": (_works("They are exact; rounds go on, and a rank in a collective is waited for there.", *_BOTH,
                           "ranks/partial/test_torch.py::test_users_own_operations_still_match"),),
        "local": (_works("They are exact; weights are this rank's until drain() or an average."),),
        "split": (
            _works("They are exact; whoever reads a weight waits for it.", _TORCH,
                   "ranks/split/test_split.py::test_whoever_reads_a_weight_waits_for_it", on=PYTORCH),
            _works("They are exact; weights are complete at the end of a step.", _KERAS, on=KERAS),
        ),
        RESIDUAL: (_nothing("Only gradients of an optimizer or tape are encoded.", *_BOTH,
                            "ranks/codecs/test_variables.py::test_scripts_of_horovod"),),
    }),
    Event("saved_and_loaded", "Save and load, also by another number of ranks", {
        "sync": (_nothing("The state is the held optimizer's.", *_BOTH, *_OTHER_RANKS),),
        ARMED: (_nothing("As sync; steps are armed again once they are alike.", _TORCH),),
        "pipelined": (_works("Gradients in flight are saved, the same on all ranks: any number of ranks goes on.",
                             *_BOTH, *_OTHER_RANKS,
                             "ranks/pipelined/test_torch.py::test_resumed_run_goes_on_bit_for_bit",
                             "ranks/pipelined/test_keras.py::test_resumed_run_goes_on_bit_for_bit"),),
        "partial": (
            _works("Each rank saves its send buffers, between two barriers, and loads its own.", *_BOTH,
                   "ranks/partial/test_state.py::test_run_that_goes_on_counts_everything_once"),
            _refused("The state of another rank or number of ranks. Remedy: drain() before saving.", *_OTHER_RANKS,
                     "ranks/partial/test_state.py::test_states_that_do_not_fit_are_refused_everywhere"),
        ),
        "local": (_works(
            "Each rank saves its model and updates since the average; after an average one state serves any number.",
            *_BOTH, *_OTHER_RANKS, "ranks/local/test_local.py::test_torch_resumed_run_goes_on_bit_for_bit",
        ),),
        "split": (
            _works("consolidate_state_dict() collects all state, which any number of ranks loads.", _TORCH,
                   "ranks/torch/test_event_table.py::test_states_of_another_number_of_ranks", on=PYTORCH),
            _refused("state_dict() without it, and local_state_dict() of another rank.",
                     "ranks/split/test_split.py::test_states", on=PYTORCH),
            _works("consolidate_state_dict() collects all state for files, which any number of ranks loads.", _KERAS,
                   "ranks/keras/test_split.py::test_files_have_the_whole_state", on=KERAS),
        ),
        RESIDUAL: (_works(
            "Each rank saves and loads its own; another rank's is left out, and it begins with zeros.",
            *_BOTH, *_OTHER_RANKS, "unit/codecs/test_encoding.py::test_a_rank_takes_no_residuals_of_another",
        ),),
    }),
    Event("through", "A rank that is through (end of the script, shutdown(), exit 0)", {
        "sync": (_refused(
            "The next operation of the others raises an error that says so; join() allows unequal numbers of steps.",
            "ranks/leaving/test_slow_rank.py::test_unequally_many_synchronous_steps_are_an_error",
            "ranks/torch/test_gradients.py::test_join_with_uneven_data",
        ),),
        ARMED: (_refused("As sync, also within a step.",
                         "ranks/armed/test_fallback.py::test_shutdown_in_the_middle_of_a_step",
                         "ranks/armed/test_fallback.py::test_ranks_that_join"),),
        "pipelined": (_works("It waits until all are through; then all drain.", *_THROUGH,
                             "ranks/pipelined/test_join.py::test_ranks_with_fewer_batches_join"),),
        "partial": (_works(
            "It takes part in rounds without a contribution until all are through; then all drain and are equal.",
            *_THROUGH, "ranks/leaving/test_slow_rank.py::test_ranks_with_unequally_many_steps_of_a_partial_exchange",
        ),),
        "local": (_works("It waits until all are through; then a last average makes models equal.", *_THROUGH),),
        "split": (
            _refused("As sync.", "ranks/leaving/test_slow_rank.py::test_unequally_many_synchronous_steps_are_an_error",
                     on=PYTORCH),
            _refused("As sync.", "ranks/leaving/test_slow_rank.py::test_unequally_many_synchronous_steps_are_an_error",
                     on=KERAS),
        ),
        RESIDUAL: (_nothing("What is left of it is dropped, as rounding without error feedback.",
                            "ranks/codecs/test_codecs_torch.py::"
                            "test_uneven_ranks_end_where_they_would_without_codec_if_errors_are_fed_back"),),
    }),
    Event("failed", "A rank that raises, is killed or stops", {
        "sync": (_works("All others raise an error that names the rank; an exception that a script survives leaves no "
                        "trace after discard().", *_KILLED, *_STOPPED, *_FAILED),),
        ARMED: (_works("As sync; a rank that is only late ends the armed step.",
                       "faults/test_armed.py::test_survivors_name_the_rank_that_dies",
                       "faults/test_armed.py::test_rank_that_raises_between_groups",
                       "faults/test_armed.py::test_rank_that_stops_between_groups"),),
        "pipelined": (_works(
            "As sync; what is in flight is lost.", *_KILLED, *_FAILED,
            "ranks/pipelined/test_torch_features.py::test_rank_that_dies_while_results_are_in_flight",
        ),),
        "partial": (_works("As sync: a dead rank is not a late one. The stall limit ends the wait for an absent one.",
                           *_KILLED, *_FAILED,
                           "ranks/partial/test_interop.py::test_rank_that_leaves_for_good_is_reported_after_the_limit"),),
        "local": (_works("The others raise it at their next average.", *_KILLED, *_FAILED),),
        "split": (
            _works("All others raise an error that names the rank, where they wait for gradients or weights.",
                   "faults/test_split.py::test_survivors_name_the_rank_that_dies", on=PYTORCH),
            _works("As sync: an exception that a script survives leaves no trace.",
                   "ranks/keras/test_failed_steps.py::test_a_failed_pass_leaves_no_trace", on=KERAS),
        ),
        RESIDUAL: (_works("As the exchange; residuals of the failed step are not used.",
                          "faults/test_collectives.py::test_survivors_in_the_middle_of_a_message_name_the_dead_rank"),),
    }),
    Event("new_world", "A new world (elastic reset, shutdown() and init())", {
        "sync": (_works("Ranks go on from the committed state; submitted gradients are forgotten.", *_BOTH,
                        "ranks/torch/test_state.py::test_a_new_start_of_horovod_between_backward_and_step",
                        "ranks/keras/test_training.py::test_elastic_state"),),
        ARMED: (_works(
            "Steps are negotiated, then armed again.", _TORCH,
            "ranks/armed/test_armed.py::"
            "test_a_rank_that_had_armed_steps_in_a_world_before_as_after_an_elastic_reset",
        ),),
        "pipelined": (_works("An elastic reset keeps gradients in flight, after a failure those of the commit. "
                             "shutdown() and init() in a script forget them.", *_ELASTIC, _CHANGES),),
        "partial": (_works("Rounds and send buffers start empty, or with those of the committed state.", *_ELASTIC),),
        "local": (_works("Ranks count updates from the beginning, or as in the committed state.", *_ELASTIC,
                         "ranks/local/test_local.py::test_torch_forgets_what_other_ranks_had"),),
        "split": (
            _works("Owners are assigned again; ranks go on with the whole state.", _TORCH, _CHANGES, on=PYTORCH),
            _works("Compiled steps of the same ranks go on. Elastic jobs are refused.", _KERAS,
                   "ranks/keras/test_split.py::test_what_it_refuses", on=KERAS),
        ),
        RESIDUAL: (_works("Loading the committed state replaces them; without that a rank keeps its own."),),
    }),
)  # fmt: skip
