resource "google_cloud_scheduler_job" "pass" {
  for_each = local.schedules

  name             = "holdfast-${each.key}"
  region           = var.region
  schedule         = each.value
  time_zone        = "Etc/UTC"
  attempt_deadline = "30s"

  # The call only starts an execution. If it fails, the next scheduled one follows
  # soon.
  retry_config {
    retry_count = 1
  }

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/projects/${var.project}/locations/${var.region}/jobs/${google_cloud_run_v2_job.pass[each.key].name}:run"

    # OAuth, not OIDC, because the call goes to Google's API and not to a service.
    oauth_token {
      service_account_email = google_service_account.scheduler.email
      scope                 = "https://www.googleapis.com/auth/cloud-platform"
    }
  }

  depends_on = [google_cloud_run_v2_job_iam_member.scheduler]
}
