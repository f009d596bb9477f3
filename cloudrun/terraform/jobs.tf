resource "google_cloud_run_v2_job" "migrate" {
  name                = "holdfast-migrate"
  location            = var.region
  deletion_protection = false
  # A new image runs the job, and the job is ready once it has succeeded. All
  # programs depend on it. So the schema is migrated before the programs that need
  # it start, and an apply whose migration fails changes no program.
  run_execution_token = substr(sha256("${var.image} ${var.metered}"), 0, 10)

  template {
    parallelism = 1
    task_count  = 1

    template {
      service_account = google_service_account.program["migrate"].email
      timeout         = "3600s"
      # An interrupted migration continues where it was.
      max_retries = 1

      volumes {
        name = "cloudsql"

        cloud_sql_instance {
          instances = [google_sql_database_instance.holdfast.connection_name]
        }
      }

      containers {
        name    = "migrate"
        image   = var.image
        command = ["/oneshot"]
        args    = ["migrate"]

        env {
          name = "DATABASE_URL"

          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.database_url.secret_id
              version = google_secret_manager_secret_version.database_url.version
            }
          }
        }

        dynamic "env" {
          for_each = local.job_env

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }

        volume_mounts {
          name       = "cloudsql"
          mount_path = "/cloudsql"
        }
      }
    }
  }

  timeouts {
    create = "70m"
    update = "70m"
  }

  depends_on = [
    google_project_iam_member.database,
    google_secret_manager_secret_iam_member.database_url,
    google_sql_database.holdfast,
    google_sql_user.holdfast,
  ]
}

resource "google_cloud_run_v2_job" "pass" {
  for_each = local.jobs

  name                = "holdfast-${each.key}"
  location            = var.region
  deletion_protection = false

  template {
    parallelism = 1
    task_count  = 1

    template {
      service_account = google_service_account.program[each.key].email
      # Above ONESHOT_TIME_MAX + DATABASE_WAIT_MAX + 20 s, so that the pass ends
      # before Cloud Run kills it.
      timeout = "${each.value.timeout}s"
      # The next scheduled execution is the retry. An invariant that is broken is
      # broken the second time, too.
      max_retries = 0

      volumes {
        name = "cloudsql"

        cloud_sql_instance {
          instances = [google_sql_database_instance.holdfast.connection_name]
        }
      }

      containers {
        name    = each.key
        image   = var.image
        command = [each.value.command]
        args    = each.value.args

        env {
          name = "DATABASE_URL"

          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.database_url.secret_id
              version = google_secret_manager_secret_version.database_url.version
            }
          }
        }

        dynamic "env" {
          for_each = [for secret in local.callback_secrets : secret if each.key == "recover"]

          content {
            name = "CHECKOUT_CALLBACK_SECRET"

            value_source {
              secret_key_ref {
                secret  = env.value
                version = "latest"
              }
            }
          }
        }

        dynamic "env" {
          for_each = each.value.env

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }

        volume_mounts {
          name       = "cloudsql"
          mount_path = "/cloudsql"
        }
      }
    }
  }

  depends_on = [
    google_cloud_run_v2_job.migrate,
    google_secret_manager_secret_iam_member.callback,
  ]
}
