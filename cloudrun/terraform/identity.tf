# Each program has its own service account, with roles on single resources if the
# role allows that.

resource "google_service_account" "program" {
  for_each = local.programs

  account_id   = "holdfast-${each.key}"
  display_name = "Holdfast: ${each.key}"

  depends_on = [google_project_service.api]
}

resource "google_secret_manager_secret_iam_member" "database_url" {
  for_each = local.programs

  secret_id = google_secret_manager_secret.database_url.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.program[each.key].member
}

resource "google_secret_manager_secret_iam_member" "callback" {
  for_each = local.callers

  secret_id = var.callback_secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.program[each.key].member
}

resource "google_secret_manager_secret_iam_member" "cells" {
  for_each = var.cells_secret == "" ? toset([]) : local.programs

  secret_id = var.cells_secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.program[each.key].member
}

# Cloud SQL has no policies per instance, so a condition names the instance.
resource "google_project_iam_member" "database" {
  for_each = local.programs

  project = var.project
  role    = "roles/cloudsql.client"
  member  = google_service_account.program[each.key].member

  condition {
    title      = "holdfast-database"
    expression = "resource.type == 'sqladmin.googleapis.com/Instance' && (${local.databases})"
  }
}

resource "google_secret_manager_secret_iam_member" "collector" {
  for_each = local.serving

  secret_id = google_secret_manager_secret.collector.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.program[each.key].member
}

# Metrics and traces belong to the project; there is no smaller resource. Logs
# need no role, because the programs write them to stdout and stderr.
resource "google_project_iam_member" "telemetry" {
  for_each = { for pair in setproduct(local.serving, ["roles/monitoring.metricWriter", "roles/cloudtrace.agent"]) : join(" ", pair) => pair }

  project = var.project
  role    = each.value[1]
  member  = google_service_account.program[each.value[0]].member
}

resource "google_service_account" "scheduler" {
  account_id   = "holdfast-scheduler"
  display_name = "Holdfast: Cloud Scheduler"

  depends_on = [google_project_service.api]
}

# This suffices to run a job, but not to override its arguments. So there is one
# job per pass.
resource "google_cloud_run_v2_job_iam_member" "scheduler" {
  for_each = local.jobs

  name     = google_cloud_run_v2_job.pass[each.key].name
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}
