"""The edge cases that the reference asserts in its own tests, each with the test of ours that settles it.

Where the reference is wrong, or its case can't arise here, the line below says how that is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

CASES = """
# backends and children
execute_delegate_binds_plugin_runtime_context
    delegation/test_seed_001.py seed_1_11_plugin_is_bound_once_with_its_keys
execute_delegate_returns_final_non_tool_message_after_tool_output
    delegation/test_seed_001.py seed_1_15_last_text_is_the_answer
execute_delegate_in_background_task_can_self_cancel_and_cascade
    delegation/test_seed_000.py seed_0_7_self_cancel_stops_all_children
execute_delegate_preserves_existing_cancel_task_tool
    delegation/test_seed_000.py seed_0_4_own_tool_named_cancel_task_is_kept
execute_delegate_preserves_non_missing_resolver_errors
    delegation/test_seed_001.py seed_1_7_unknown_and_unresolvable_agents_differ
backend_status_timeout_is_first_class
    backends/test_remote_runs.py backend_is_stopped_and_aborted_on_timeout
backend_status_waiting_is_first_class
    backends/test_remote_runs.py question_is_answered_in_another_process
load_checkpoint_state_rejects_missing_durable_run_even_with_fallback
    backends/test_seed_002_runs.py seed_2_35_unreadable_state_fails_run
remote_message_append_preserves_concurrent_committed_messages
    conformance/test_store.py claimed_thread_refuses_other_writers
remote_checkpoint_identity_rejects_thread_mismatch
    conformance/test_store.py fence_of_another_thread_is_refused
run_non_local_root_cancel_invokes_backend_abort_hook
    backends/test_seed_002_runs.py seed_2_25_cancelled_run_is_aborted_once
run_rejects_remote_overrides
    backends/test_seed_002_contract.py seed_2_7_root_request_needs
run_rejects_remote_resume_decisions
    backends/test_seed_002_contract.py seed_2_6_decisions_are_needed_by_list_or_channel
run_rejects_remote_frontend_tools
    backends/test_seed_002_contract.py seed_2_8_mismatches_have_fixed_order
run_rejects_remote_continuation
    backends/test_seed_002_contract.py seed_2_8_mismatches_have_fixed_order
run_non_local_continuation_uses_requested_run_state_not_latest
    loop/test_edge_state.py run_continues_on_its_own_thread_only
unknown_seed_key_fails_the_child_run
    loop/test_edge_cases.py invalid_seed_changes_nothing
seed_rejected_when_backend_lacks_capability
    delegation/test_seed_003_remote.py seed_3_11_remote_agent_takes_no_state
local_child_agent_uses_resolved_execution_without_second_lookup
    delegation/test_seed_001.py seed_1_7_unknown_and_unresolvable_agents_differ
drops_progress_from_unknown_call
    backends/test_remote_runs.py callbacks_are_refused_after_request_ended
wraps_error_events_as_tool_stream_by_default
    delegation/test_seed_003.py seed_3_9_foreground_child_streams_progress
# background work
cancel_descendants_for_run_rejects_late_root_spawns
    tasks/test_functions.py cancel_descendants_for_run_rejects_late_spawns
cancel_descendants_for_run_rejects_late_nested_spawns
    delegation/test_behaviour.py cancelled_run_starts_no_child
restore_degrades_orphaned_running_tasks_to_failed
    tasks/test_kill.py restore_fails_orphaned_tasks
restore_does_not_degrade_live_running_tasks
    tasks/test_coroutines.py restore_keeps_live_tasks_running
restore_updates_counter_correctly
    types/test_ids.py ids_are_monotonic
    — a task's id is a UUIDv7: there is no counter to restore
spawn_rejects_reserved_name
    tasks/test_functions.py spawn_rejects_reserved_name
spawn_rejects_duplicate_name
    tasks/test_functions.py spawn_rejects_duplicate_name
spawn_allows_same_name_after_completion
    tasks/test_functions.py spawn_rejects_duplicate_name
spawn_allows_same_name_on_different_threads
    tasks/test_functions.py spawn_rejects_duplicate_name
completion_metadata_commit_failure_leaves_store_stuck_at_running
    crash/test_family.py delegation_survives_kill_after_each_commit
    — the reference's defect: here a result and its status are one commit
on_closed_fires_for_late_task_completion
    tasks/test_functions.py task_is_adopted_by_run_that_owns_thread
send_message_rejects_wrong_thread
    messaging/test_seed_004.py seed_4_7_unknown_or_foreign_child_is_not_found
send_message_rejects_completed_task
    messaging/test_seed_004.py seed_4_8_ended_child_is_unavailable
send_message_rejects_nonexistent_task
    messaging/test_seed_004.py seed_4_7_unknown_or_foreign_child_is_not_found
send_message_rejects_regular_task
    messaging/test_seed_004.py seed_4_8_ended_child_is_unavailable
pattern_cancel_all_thread_isolation
    tasks/test_functions.py cancel_by_pattern_stays_within_thread
emit_after_cancel_still_delivers
    tasks/test_functions.py emit_after_cancel_still_delivers
agent_with_running_task_enters_awaiting_tasks
    tasks/test_functions.py agent_with_running_task_enters_awaiting_tasks
sub_agent_waits_for_bg_task_completion_before_returning
    tasks/test_functions.py sub_agent_waits_for_bg_task_completion_before_returning
background_events_buffer_while_suspended_until_decision_arrives
    tasks/test_functions.py task_events_wait_while_run_is_suspended
self_cancel_from_run_context_cascades_run_children
    tasks/test_functions.py self_cancel_reaches_children_of_run
# messages
dispatch_retries_then_dead_letters_durable
    messaging/test_relays.py failed_delivery_is_retried_by_clock
dispatch_dead_letters_durable_without_sink
    messaging/test_relays.py address_without_transport_is_not_found
redelivery_after_crash_keeps_same_message_id
    crash/test_messages.py messaging_survives_kill_at_every_commit
dispatcher_without_explicit_sink_delivers_via_ambient_sink
    messaging/test_relays.py pending_delivery_is_taken_over
committed_message_is_id_addressed_and_attributes_sender
    messaging/test_seed_004.py seed_4_16_sent_message_has_all_fields
redelivery_is_idempotent_no_duplicate_append
    messaging/test_arrivals.py message_id_is_delivered_once
errors_when_mailbox_dropped
    messaging/test_relays.py non_serving_runtime_delivers_nothing
replay_re_enqueues_and_clears
    messaging/test_relays.py dead_letters_are_listed_replayed_and_dropped_one_by_one
# dispatch
concurrent_claim_only_one_wins
    conformance/test_store_claims.py thread_is_claimed_once
claim_dispatch_ignores_available_at
    conformance/test_store_claims.py delayed_dispatch_is_claimed_when_due
    — the reference claims what isn't due yet; here nobody does
distributed_expired_lease_reclaim_rejects_late_old_owner_ack
    conformance/test_store_claims.py dead_owner_is_fenced_after_takeover
distributed_lease_reclaim_uses_strict_expiry_boundary
    conformance/test_store_ownership.py claim_of_live_worker_is_not_taken_over
interrupt_between_claim_and_execution_supersedes_without_runtime_start
    loop/test_edge_cases.py run_cancelled_before_first_step_has_no_steps
submit_inline_claim_empty_cancels_precreated_run
    conformance/test_store.py claim_and_first_writes_are_atomic
    — a run is made by the commit that claims it, so that none is left behind
foreground_submit_does_not_prepare_replacement_when_local_cancel_times_out
    runtime/test_busy_threads.py send_interrupt_to_running_thread_cancels_it_first
foreground_submit_does_not_prepare_replacement_when_remote_cancel_times_out
    runtime/test_bus.py cancel_from_another_process_is_immediate
    — what interrupts waits in the inbox for the end of what it interrupts, wherever that runs
cross_instance_concurrent_submits_do_not_lose_messages
    conformance/test_store_inbox.py concurrent_deliveries_are_all_kept
reconstruct_failure_dead_letters_once
    conformance/test_store_claims.py dead_letter_is_listed_and_revived
permanent_inference_error_dead_letters_after_single_run
    loop/test_model_errors.py permanent_error_is_not_retried
    — the run has failed, which is its outcome: delivering it again would end the same
background_success_recovers_ack_after_result_was_recorded
    conformance/test_store.py last_writes_and_release_are_atomic
    — there is no ack apart from the result
recover_reconstructs_dispatch_for_prepared_run_missing_wal
    conformance/test_store_ownership.py run_written_without_claim_is_due
recover_only_enqueues_orphaned_background_task_waiting_runs
    conformance/test_store_ownership.py waiting_run_is_due_for_waking_items
reusable_waiting_run_prefers_thread_open_run_projection
    conformance/test_store_view.py view_includes_waiting_run
    — a thread has one open run, and its view shows it
live_then_queue_is_at_least_once_when_ack_lost
    conformance/test_store_inbox.py item_is_delivered_once_in_any_status
    — the inbox comes first and the live command is a hint, so that it is exactly once
live_then_queue_falls_back_when_subscriber_drops_receipt
    runtime/test_bus.py bus_outage_loses_no_events_or_input
targeted_live_delivery_does_not_ack_stale_same_thread_subscriber
    conformance/test_bus.py command_reaches_owner_only_and_is_acknowledged
freeze_retry_after_conflict_does_not_leave_phantom_trigger_ids
    conformance/test_store_inbox.py refused_commit_delivers_nothing
preflight_foreground_blocked_by_leading_barrier
    runtime/test_busy_threads.py runs_on_busy_thread_take_turns_in_order
resume_input_does_not_consume_unrelated_queued_new_run
    runtime/test_busy_threads.py send_queue_to_waiting_thread_waits_for_ticket_too
dedupe_key_reusable_after_cancel
    conformance/test_store_pending.py retracted_item_is_gone_and_not_delivered_again
    — a request id stands for one request for ever; somebody who means another one names another
# remote agents
abort_task_id_does_not_reuse_completed_prior_state
    backends/a2a/test_recovery.py abort_ignores_task_of_another_run
corrupt_persisted_remote_state_is_not_treated_as_missing
    backends/a2a/test_recovery.py unreadable_state_is_an_error
stream_artifact_append_accumulates_output_text
    backends/a2a/test_execution.py streamed_artifacts_equal_polled_ones
waiting_task_id_resumes_the_same_task
    backends/a2a/test_execution.py answer_goes_to_task_of_question
send_message_rejects_ambiguous_agent_for_existing_thread
    messaging/test_seed_004.py seed_4_11_agent_route_passes_agent_through
run_api_gateway_persists_remote_handle_after_submit_before_completion
    delegation/test_seed_003_remote.py seed_3_14_remote_task_locator_is_recoverable
handle_table_ignores_stale_completion_by_epoch
    delegation/test_seed_003.py seed_3_8_result_of_older_epoch_is_ignored
cancellation_requested_overrides_completion_status
    delegation/test_behaviour.py stopped_task_reports_nothing_more
handle_table_cross_owner_stop_is_denied
    delegation/test_seed_003.py seed_3_3_foreign_task_is_not_continued
recovery_plugin_detects_multiple_orphans_creates_one_suspension
    crash/test_family.py durable_child_runs_elsewhere_when_owner_is_dead
    — an orphan is taken over by whoever finds its lease over: no person is asked
recovery_plugin_leaves_remote_orphans_running
    delegation/test_seed_003_remote.py seed_3_19_unfollowed_task_is_followed
agent_output_tool_backfills_legacy_completed_remote_a2a_run
    delegation/test_seed_003_remote.py seed_3_21_task_output
parallel_launch_and_immediate_stop
    delegation/test_behaviour.py cancel_of_tree_of_fifty_leaves_nothing
# models and long conversations
r2_completed_tool_synthesizes_tool_use_without_another_round_trip
    loop/test_broken_streams.py complete_call_runs_without_second_request
cross_process_resume_with_completed_tool_checkpoint_short_circuits_to_tool_use
    runtime/test_durable_streams.py broken_answer_with_complete_call_is_kept
cancellation_during_backoff_aborts_retry_loop_with_cancelled_error
    loop/test_retries.py cancel_ends_backoff_at_once
    — the reference reports an error; here the run is cancelled
unresolvable_stream_failure_skips_recording_instead_of_blaming_active
    models/test_breaker.py breaker_ignores_permanent_errors
stale_stream_success_does_not_clear_recovery_attempt
    models/test_breaker.py breaker_ignores_streams_of_an_earlier_generation
dropping_half_open_stream_releases_probe_without_counting_failure
    models/test_breaker.py breaker_releases_an_abandoned_probe
unknown_member_bound_makes_pool_bound_unknown
    models/test_pool.py pool_facts_are_the_smallest_of_its_members
try_consume_compaction_event_ignores_stale_task_without_clearing_current_in_flight
    context/test_compaction.py cancelled_run_leaves_its_summary_to_the_next
    — a summary never outlives the activation that wants it, so that none is stale when it lands
plan_compaction_preserves_latest_user_message_raw
    context/test_compaction.py last_user_message_is_never_summarised
stamp_compaction_marks_skips_when_boundary_absent_from_committed
    context/test_compaction.py summary_of_changed_history_is_discarded
"""

ENTRY = re.compile(r"^(\w+)\n    (\S+) (\w+)$", re.MULTILINE)


@pytest.mark.parametrize(("case", "path", "name"), ENTRY.findall(CASES))
def test_upstream_case_is_settled_by_test(case: str, path: str, name: str) -> None:
    assert re.search(rf"^(async )?def test_{name}\(", (TESTS / path).read_text(), re.MULTILINE), case


def test_every_upstream_case_is_listed() -> None:
    assert len({case for case, _, _ in ENTRY.findall(CASES)}) == 95
