"""What `make test` leaves to `make test-long`, so that a stranger waits minutes for it and not half an hour.

`make test` keeps what protects users most: delivery guarantees, old checkpoints, a crash run, the recipes of the docs,
and one way of the learners that most take. Here is the rest: what needs programs of other projects, real outages of
every sort, and all learners with all number types, kernels and settings.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

#: Folders, files and tests.
LONG: Final = (
    # Chart, rules and image: helm, promtool, Alertmanager, a container build; what only reads files stays.
    "tests/deploy/cluster/",
    "tests/deploy/image/",
    "tests/deploy/monitoring/",
    "tests/deploy/test_chart.py",
    "tests/deploy/test_chart_services.py",
    "tests/deploy/test_compose.py",
    "tests/deploy/test_container.py",
    "tests/deploy/test_go_toolchain.py",
    "tests/deploy/test_go_tools.py",
    "tests/deploy/test_names.py::test_every_topic_of_the_chart_exists",
    "tests/deploy/test_names.py::test_a_user_may_read_in_the_group_of_its_agent_and_in_no_other",
    "tests/deploy/test_names.py::test_the_topics_of_the_chart_are_the_catalogue",
    "tests/deploy/test_names.py::test_every_variable_of_a_pod_is_a_setting",
    "tests/deploy/test_names.py::test_every_command_of_the_chart_exists",
    "tests/deploy/test_names.py::test_every_series_that_is_named_exists",
    "tests/monitoring/test_promtool.py",
    # Second implementations, written from the papers, of every learner.
    "tests/learners/test_transcriptions.py",
    "tests/learners/test_transcriptions_kernels.py",
    "tests/learners/test_transcriptions_themselves.py",
    "tests/learners/test_oahu_reference.py",
    "tests/papers/",
    # torch, and the kernels of a second learner.
    "tests/evaluation/test_queries.py::test_the_batch_adapter_finds_what_was_turned",
    "tests/evaluation/test_queries.py::test_the_command_prints_a_row_for_each_metric",
    "tests/learners/test_oahu.py::test_compiled_steps_are_those_of_autograd",
    "tests/learners/test_oahu_torch.py",
    # One property of every learner in every setting.
    "tests/learners/test_export_onnx.py::test_every_learner_has_the_form_or_says_that_it_has_none",
    "tests/learners/test_export_onnx.py::test_the_scaler_is_within",
    "tests/learners/test_export_rank.py::test_an_export_has_at_most_as_many_columns_as_features",
    "tests/learners/test_export_rank.py::test_what_has_several_parts_is_written_with_fewer_columns_as_well",
    "tests/learners/test_export_onnx.py::test_a_fusion_has_an_input_for_each_modality_that_measures",
    "tests/learners/test_first_model.py",
    "tests/learners/test_kernel_lego.py",
    "tests/learners/test_lego.py::test_rho_is_held_and_counted_as_clipped",
    "tests/learners/test_oahu.py::test_what_holds_after_every_step",
    "tests/learners/test_itml_online.py",
    "tests/learners/test_no_python_per_constraint.py",
    "tests/search/test_ranked_space.py::test_numbers_that_are_none_or_not_finite_are_missing_and_rows_without_text_have_no_words",
    "tests/search/test_feedback_service.py::test_every_answer_to_feedback_is_in_the_schema",
    "tests/search/test_ranked_stores.py",
    # LangChain and LlamaIndex.
    "tests/search/test_retrievers.py",
    "tests/search/test_served_exactly.py",
    "tests/streams/test_admin_requests.py",
    "tests/streams/test_crashes_of_kinds.py",
    "tests/streams/test_repartition_kills.py",
    # Approximate indexes, which are chosen by whoever has measured them.
    "tests/search/test_lsh_linear.py",
    "tests/search/test_lsh_candidates.py",
    "tests/search/test_recall.py",
    "tests/learners/test_batch.py",
    "tests/learners/test_eigenpair.py",
    "tests/learners/test_equal_vectors.py",
    "tests/learners/test_late_events.py",
    "tests/learners/test_mdml.py",
    "tests/learners/test_rdml.py",
    "tests/learners/test_steps.py",
    "tests/learners/test_zero_differences.py",
    "tests/learners/test_checks.py::test_other_processes_end_in_the_same_state",
    "tests/cli/test_models.py::test_a_similarity_can_be_ranked_by_with_numpy_alone",
    "tests/search/test_model.py::test_threads_share_a_model",
    # Learners of several modalities, whose kernels take long to compile.
    "tests/learners/test_lomdml.py",
    "tests/learners/test_following.py::test_one_modality_that_leaves_its_scale_is_renewed_and_the_other_stays",
    "tests/learners/test_fusion.py",
    "tests/learners/test_multi_modal_path.py",
    "tests/learners/test_omdl_lr.py",
    "tests/learners/test_omks.py",
    "tests/learners/test_sors.py",
    "tests/learners/test_oahu.py::test_every_gradient_is_a_finite_difference",
    "tests/learners/test_omdml.py",
    "tests/learners/test_rank_one.py",
    "tests/learners/test_oasis.py::test_utilised_means_other_bits_and_the_converse",
    "tests/learners/test_oasis.py::test_the_loss_falls_by_tau_times_the_squared_norm",
    "tests/evaluation/test_held_out.py::test_a_space_of_one_modality_has_both_kinds_too",
    "tests/evaluation/test_held_out.py::test_learners_of_several_modalities_beat_plain_distance",
    "tests/evaluation/test_held_out.py::test_one_modality_and_several_stand_in_one_table",
    # What compiles the kernels of other learners than the default ones, or does a thing for every learner again.
    "tests/cli/test_models.py::test_topic_and_checkpoints_list_the_same_models",
    "tests/cli/test_models.py::test_map_and_offset_are_the_transform",
    "tests/learners/test_events.py::test_events_need_no_other_machine_code",
    "tests/learners/test_events.py::test_long_events_are_judged_by_the_model_before_them",
    "tests/learners/test_export_onnx.py::test_networks_of_oahu",
    "tests/learners/test_kernels.py::test_overflow_is_rejected_and_leaves_the_map",
    "tests/learners/test_lego.py::test_auto_is_decided_by_dimension_alone",
    "tests/learners/test_lego.py::test_warm_up_leaves_nothing_to_compile",
    "tests/learners/test_margins.py::test_margins_of_networks_are_those_of_their_vote",
    "tests/learners/test_oahu.py::test_triplets_that_contradict_each_other_keep_the_state_sound",
    "tests/learners/test_oahu.py::test_the_isometric_beginning_ranks_like_the_cosine_of_lifted_vectors",
    "tests/learners/test_oasis.py::test_a_step_that_is_lost_in_rounding_changes_nothing",
    "tests/learners/test_pola.py",
    "tests/learners/test_sklearn.py::test_a_clone_and_a_pickled_copy_end_in_the_same_bits",
    "tests/learners/test_sklearn.py::test_pieces_of_whole_blocks_end_in_the_bits_of_one_call",
    "tests/learners/test_soml.py",
    "tests/evaluation/test_importance.py",
    "tests/evaluation/test_run.py::test_a_cell_that_was_written_in_part_is_run_again",
    "tests/evaluation/test_run.py::test_more_of_an_experiment_takes_over_what_is_finished",
    "tests/evaluation/test_run.py::test_nothing_of_another_question_is_taken_over",
    "tests/evaluation/test_command.py::test_a_newcomer_reads_one_table_one_recommendation_and_the_features",
    # Tens of thousands of mutated records, and figures of simulators.
    "tests/streams/test_codec.py::test_no_mutated_record_crashes_the_codec",
    "tests/streams/test_codec.py::test_no_mutated_record_crashes_a_builder",
    "tests/streams/test_codec.py::test_no_mutated_record_crashes_a_learner",
    "tests/producers/test_click_simulator.py",
    "tests/producers/test_open_bandit.py",
    "tests/processors/test_reservoir.py",
    "tests/monitoring/report/test_charts.py",
    "tests/monitoring/report/test_write.py",
    # Environments without the packages of extras, and pages of the docs beside README's.
    "tests/packaging/test_extras.py",
    "tests/packaging/test_beside_other_code.py::test_what_is_imported_is_the_wheel",
    "tests/docs/test_tutorial.py",
    "tests/docs/test_evaluating.py",
    "tests/docs/test_operations.py",
    # What draws must look like in the long run, and a second implementation of the rules for clicks.
    "tests/processors/test_click_reference.py",
    "tests/processors/test_closure.py::test_triplet_draws_are_uniform_over_all_kinds",
    "tests/processors/test_closure.py::test_draws_without_replacement_are_uniform",
    "tests/processors/test_closure_hubs.py",
    "tests/processors/test_clicks.py::test_fair_pairs_undo_the_bias_of_the_presentation",
    "tests/processors/test_clicks.py::test_thinning_keeps_clicks_in_proportion_to_the_weights",
    "tests/processors/test_random_pairs.py::test_the_partner_is_uniform_over_all_earlier_samples",
    "tests/processors/test_random_triplets.py::test_class_anchors_are_uniform_over_classes_however_rare",
    "tests/processors/test_random_triplets.py::test_positives_and_negatives_are_uniform_over_earlier_samples",
    # Figures of simulated and of real clicks.
    "tests/clicks/test_bad_input.py::test_contradictions_one_by_one_have_a_letter_each_and_change_nothing",
    "tests/clicks/test_bad_input.py::test_ten_thousand_relations_that_merge_stay_within_their_caps",
    "tests/clicks/test_bought.py::test_bursts_from_one_address_do_not_move_an_adapter",
    "tests/clicks/test_mistake_rate.py",
    "tests/clicks/test_online_mistake_rate.py",
    "tests/clicks/test_open_bandit.py",
    # Counts of three ways to evaluate, and its interruptions.
    "tests/evaluation/test_agreement.py",
    "tests/evaluation/test_run.py::test_an_interrupted_experiment_ends_in_the_same_bytes_and_repeats_no_cell",
    "tests/evaluation/test_run.py::test_an_interruption_in_the_midst_of_the_pools_work_comes_after_it",
    "tests/evaluation/test_command.py::test_two_processes_and_an_interruption_end_in_the_bytes_of_one",
    "tests/evaluation/test_command.py::test_its_processes_end_with_it_however_it_ends",
    "tests/docs/test_docstrings.py",
    # An installation beside other code.
    "tests/packaging/test_beside_other_code.py::test_a_strictly_typed_script_is_accepted",
    "tests/packaging/test_beside_other_code.py::test_examples_of_the_readme_run_among_modules_of_the_same_names",
    # The broker that tests use.
    "tests/kafka/test_broker.py",
    # Real workers in trouble; a killed broker, killed workers, checkpoints and poisoned records stay.
    "tests/crash/test_crash_run.py",
    "tests/crash/test_join_crash_run.py",
    "tests/faults/test_log.py",
    "tests/faults/test_outages.py::test_an_outage_is_reported_in_one_line_of_ours_and_a_stop_in_it_leaves_no_traceback",
    "tests/faults/test_outages.py::test_the_end_of_an_outage_is_reported_too",
    "tests/faults/test_outages.py::test_a_stop_signal_while_the_broker_is_away_ends_within_its_limit",
    "tests/faults/test_outputs.py",
    "tests/faults/test_own_outputs.py",
    "tests/faults/test_recreated.py",
    "tests/faults/test_refusals.py",
    "tests/faults/test_strings.py",
    "tests/faults/test_take_over.py",
    "tests/faults/test_topics_watched.py",
    "tests/faults/test_updates.py",
    "tests/faults/test_watchdog.py",
    "tests/sources/test_kafka.py",
    "tests/sources/test_fuzz.py::test_mutated_json_stops_nothing",
    "tests/sources/test_ubi.py::test_crashes_lose_and_repeat_no_list",
    "tests/security/test_acls.py",
    "tests/security/test_refused_while_running.py",
    "tests/security/test_roles.py",
    "tests/cli/test_closure.py",
    "tests/cli/test_demo.py::test_it_ends_by_itself_and_stays_up_when_told_to_in_one_folder_and_leaves_no_process",
    "tests/cli/test_demo.py::test_ctrl_c_ends_it_within_ten_seconds",
    "tests/cli/test_demo.py::test_it_needs_no_torch",
    "tests/cli/test_demo_clicks.py",
    "tests/cli/test_up.py::test_readyz_names_the_agents_and_their_process_and_a_second_up_is_refused_by_the_first_ones_id",
    "tests/producers/test_produce_command.py::test_a_load_killed_again_and_again_counts_every_row_once",
    "tests/replay/test_kafka.py::test_two_builders_each_followed_by_a_learner_of_its_own",
    "tests/search/test_follower_kafka.py",
    "tests/search/test_store_process.py",
    "tests/search/test_stores.py",
    # Requests made up from the schema, to a store; those to our own index stay.
    "tests/search/test_store_openapi.py",
    "tests/gate/test_interleaving.py::test_equal_rankings_are_told_apart_in_few_runs_although_it_is_looked_at_after_every_impression",
    "tests/gate/test_interleaving.py::test_the_interval_holds_at_all_looks_together",
    "tests/faults/test_poison.py::test_every_bad_constraint_block_becomes_a_dead_letter_and_its_chain_goes_on",
    "tests/search/test_process.py::test_a_catalogue_is_read_anew_where_its_topic_was_recreated",
)
#: Cases: torch, which `make test` does not install; what fills the memory of every builder; odd strings in the
#: closure; of the commands that wait for a broker that does not answer all but one; what compiles for long.
LONG_CASES: Final = re.compile(
    r"::test_.*(\[(.*[:-])?torch\b(?!\.)|memory_is_bounded\]|_redrives\[closure\]|_in_the_same_words\[(?!models list)"
    r"|_left_to_compile\[(closure|clicks)\]|_as_they_say\[closure\]"
    r"|_does_for_every_scale\[(?!opml\]|copml\])|_checks_of_scikit_learn\[.*(rdml|omdml)"
    r"|_published_unit_goes_on_as_it_was\[(?!opml\]|copml\]|oasis\])|_needs_no_ceiling\[(?!1-0.0001-float64-seq)"
    r"|_spec_in_numpy_does\[2-anchored-literal\]|_threshold_at_one\[1-0.0001|_runs\[docs/learning.md:2"
    r"|steps_are_those_of_the_formulas\[(?!3-24-dot|2-100-512-none)"
    r"|_never_stopped\[learner-(?!(opml|copml|mixture|softmax|lda|oasis|oahu)\])|_runs\[docs/sklearn.md"
    r"|_crashes_change_nothing\[([1-9]|1\d)-|_the_same_in_another_process\[4711|_had_always_been_there\[\(3, 7"
    r"|_past_its_last_checkpoint\[(?!full))"
    # Further sources of a load, sizes of segments, seeds and examples.
    r"|::test_.*(_at_any_block_counts_every_row_once\[progress \w+-(items (csv|npz)|impressions|now|simulated)"
    r"|_from_every_message\[usual segments|_process_does_the_same\[4711|_sequence_of_changes\[faiss-flat"
    r"|_in_bursts_promotes_nothing\[item|_whatever_happens\[float64|_example_runs\[docs/(building|learning|producing)\.md)"
    # The second number type of learners whose kernels take long to compile.
    r"|tests/learners/test_(kernels|lego|oahu|oasis|opml)\.py::.*\[(?!{).*float32"
)
#: Learners of which all tests are long: few take them, and each has kernels of its own.
LONG_KINDS: Final = (
    "adasors",
    "kernel-lego",
    "lomdml",
    "mdml",
    "omdl-lr-like",
    "omdml",
    "omks",
    "pola",
    "rdml",
    "soml-da",
    "soml-tg",
    "sors",
)
_OF_A_LONG_KIND: Final = re.compile(rf"::test_.*\[(.*[:-])?({'|'.join(LONG_KINDS)})(?![a-z])")
#: The expression of markers by which `make test` leaves long tests out.
NOT_LONG: Final = "not long"
_LONG: Final = frozenset(one.rstrip("/") for one in LONG)
#: What waits for minutes begins first: at the end nothing else would be left to do meanwhile.
FIRST: Final = "tests/faults/test_outages.py::"
#: Tests over cases, of which `make test` runs the first of every other learner.
OVER_CASES: Final = "tests/learners/test_checks.py::test_check"


def is_long(nodeid: str) -> bool:
    """Whether a test belongs to `make test-long` by its name."""
    name = nodeid.partition("[")[0]
    if LONG_CASES.search(nodeid) or _OF_A_LONG_KIND.search(nodeid):
        return True
    file, *inner = name.split("::")
    return _holds(file) or any("::".join((file, *inner[: k + 1])) in _LONG for k in range(len(inner)))


@cache
def _holds(path: str) -> bool:
    """Whether a file or a folder is long, or one that it is in."""
    return path in _LONG or (path != "" and _holds(path.rpartition("/")[0]))


def mark(items: list[pytest.Item]) -> None:
    """Give the marker `long` to what belongs to `make test-long`."""
    first: dict[str, str] = {}
    for item in items:
        case = _case(item) if item.nodeid.startswith(OVER_CASES + "[") else None
        if is_long(item.nodeid) or (
            case is not None and first.setdefault(case.partition(":")[0], case) != case
        ):
            item.add_marker("long")


def _name(path: Path, config: pytest.Config) -> str:
    return path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else ""


def _case(item: pytest.Item) -> str:
    name: str = item.callspec.params["case"].name  # type: ignore[attr-defined]
    return name


class Selection:
    """Marks what is long, and ends the session with one line that says what was left out and how to get it."""

    def __init__(self) -> None:
        self._long = 0
        self._files = 0
        self._reasons: set[str] = set()
        self._skipped = 0

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Whole files of long tests are not even read, which takes every process of pytest-xdist half a minute."""
        if config.option.markexpr != NOT_LONG or not is_long(_name(collection_path, config)):
            return None
        if collection_path.suffix == ".py":
            self._files += collection_path.name.startswith("test_")
            return True
        self._files += sum(1 for _ in collection_path.rglob("test_*.py"))
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Before `-m` chooses.
        mark(items)
        items.sort(key=lambda item: not item.nodeid.startswith(FIRST))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._long += sum(item.get_closest_marker("long") is not None for item in items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["long"] = self._long
            output["files"] = self._files

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        # Every process of pytest-xdist collects all tests.
        output = getattr(node, "workeroutput", {})
        self._long = max(self._long, output.get("long", 0))
        self._files = max(self._files, output.get("files", 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
            self._skipped += 1
            self._reasons.add(report.longrepr[2].removeprefix("Skipped: "))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if hasattr(config, "workerinput"):
            return
        parts = []
        if self._long or self._files:
            parts.append(
                f"{self._long} long tests and {self._files} files of long tests (make test-long runs them)"
            )
        if self._skipped:
            parts.append(
                f"{self._skipped} tests that need what is missing here ({'; '.join(sorted(self._reasons))})"
            )
        if parts:
            print(f"left out: {', and '.join(parts)}")
