//! What every driver has to do. The cases see the seam and nothing else; `suite!` makes them
//! tests of one driver.

pub(crate) mod boots;
pub(crate) mod claims;
pub(crate) mod forensics;
pub(crate) mod holds;
pub(crate) mod neighbours;
pub(crate) mod operators;
pub(crate) mod order;
pub(crate) mod owners;
pub(crate) mod polls;
pub(crate) mod submits;
pub(crate) mod updates;

/// Makes tests of all cases: `$world` is an expression of type `(guard, World)`.
macro_rules! suite {
    ($open:expr; $($module:ident: $($case:ident),+ $(,)?;)+) => {$(
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (_guard, world) = $open();
                    crate::conformance::$module::$case(world).await;
                }
            )+
        }
    )+};
}
pub(crate) use suite;

/// The whole suite for one driver.
macro_rules! conformance {
    ($open:expr) => {
        crate::conformance::suite! {
            $open;
            submits:
                an_accepted_job_is_queued_with_all_it_was_given,
                a_repeated_submission_is_the_same_job,
                an_identical_request_finds_the_job_under_way,
                of_thirty_two_identical_requests_one_makes_a_job,
                of_thirty_two_different_requests_one_wins,
                a_made_instance_is_already_there_and_another_request_conflicts,
                requests_without_an_instance_are_refused,
                an_update_applies_what_it_desired_only_when_it_succeeds,
                an_update_that_writes_nothing_keeps_the_outputs,
                a_failed_create_may_be_asked_for_again,
                a_spent_budget_is_inherited_and_not_reopened_by_an_identical_request;
            updates:
                an_update_that_succeeds_moves_the_order_that_the_instance_answers_to,
                an_update_of_what_has_been_updated_meanwhile_is_stale,
                a_context_is_kept_where_no_job_is_under_way,
                what_another_platform_ordered_is_not_there_where_they_are_isolated,
                a_rotation_is_given_what_its_predecessor_keeps,
                whatever_was_decided_on_an_instance_that_changed_is_stale,
                a_delete_that_waited_for_an_update_goes_by_what_that_made,
                an_update_is_not_retried_over_a_later_one;
            claims:
                the_longest_due_is_claimed_first,
                services_take_turns,
                a_lone_newcomer_is_not_starved_by_a_long_line,
                no_service_runs_more_than_its_share,
                a_backoff_is_over_when_it_is_due_and_when_the_clock_has_stepped_back,
                a_suspect_is_claimed_alone_and_only_when_asked_for,
                what_waits_past_its_deadline_ends_in_the_claim,
                one_claim_ends_so_many_that_may_not_run_and_no_more,
                next_due_tells_when_there_is_work;
            owners:
                an_owner_reads_inputs_and_writes_progress,
                a_stale_owner_changes_nothing,
                an_adopted_attempt_has_a_new_owner,
                the_death_of_a_broker_is_counted_once_and_kept,
                data_goes_from_one_action_to_the_next,
                private_data_of_a_failed_run_is_kept,
                what_is_not_for_the_platform_is_no_output,
                crashes_end_in_quarantine_and_nothing_is_deleted,
                a_final_job_stays_final,
                a_repeated_finish_is_lost,
                attempts_are_on_record_with_their_charge;
            neighbours:
                an_owner_writes_about_its_own_job_and_no_other,
                what_becomes_of_an_instance_becomes_of_no_other,
                what_one_action_is_suspected_of_no_other_is,
                one_binding_is_not_charged_for_another,
                what_one_binding_is_suspected_of_no_other_is;
            order:
                a_delete_during_create_waits_keeps_the_outputs_and_cleans_up,
                a_delete_of_a_waiting_create_ends_it_at_once,
                a_delete_is_accepted_in_every_state,
                a_delete_unbinds_what_is_bound_first,
                a_delete_takes_over_a_bind_under_way,
                a_delete_joins_an_unbind_under_way,
                a_cascade_that_is_out_of_date_is_stale,
                bindings_go_without_jobs_where_there_is_no_unbind,
                an_unbind_waits_for_what_runs_on_the_instance,
                what_waits_for_a_binding_that_is_gone_ends,
                binds_of_one_instance_run_side_by_side,
                a_failed_unbind_lets_the_delete_go_on;
            operators:
                a_waiting_job_is_stopped_at_once_and_a_running_one_is_asked,
                deadlines_end_what_waits_and_ask_what_runs_once,
                a_retry_clears_the_budget_on_record,
                a_retry_is_refused_where_it_makes_no_sense,
                a_discarded_provision_is_registered_as_a_leak,
                suspicion_is_lifted_by_hand,
                suspicion_lifted_by_way_of_an_older_job_frees_the_one_that_waits,
                suspects_are_counted_and_listed_until_they_are_final,
                a_condemned_run_is_to_stop,
                counts_count,
                lists_are_filtered_and_paged,
                retention_keeps_what_may_still_be_asked_for,
                of_orders_on_a_spent_budget_the_latest_is_kept,
                setting_aside_is_final_and_delays_nobody;
            polls:
                a_poll_finds_the_named_job_or_the_latest,
                a_tombstone_answers_while_the_id_lives_again,
                a_gone_instance_keeps_no_secret,
                views_show_what_was_applied,
                a_binding_is_shown_with_its_credentials_and_gone_with_its_instance;
            boots:
                a_verdict_is_given_once,
                a_drain_mark_stays,
                what_broke_a_boot_stays_with_its_drain_mark,
                boots_are_in_the_order_in_which_they_began_whatever_the_clock_says,
                how_a_boot_ended_is_kept_once_without_its_last_words,
                running_rows_come_page_by_page,
                claimed_attempts_are_told_from_strays,
                deleted_instances_are_told_from_living_and_unknown_ones,
                the_store_checks_itself,
                digests_tell_requests_apart;
            holds:
                a_hold_is_on_record_until_it_is_released,
                ends_of_boots_come_newest_first_with_what_came_of_them,
                a_job_that_ends_by_itself_is_something_that_its_boot_got_done,
                a_death_is_told_once_in_the_audit_however_often_it_is_met,
                a_release_forgives_the_deaths_before_it;
            forensics:
                what_is_known_of_a_bad_end_is_kept_and_bounded,
                a_start_that_was_noted_stands,
                what_died_beside_is_near_in_time_or_was_lost_with_one_boot,
                boots_that_its_attempts_were_near_are_told_with_their_ends;
        }
    };
}
pub(crate) use conformance;
