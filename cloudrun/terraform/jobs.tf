resource "google_cloud_run_v2_job" "migrate" {
  name                = "holdfast-migrate"
  location            = var.region
  deletion_protection = false
  # A new image or cell runs the job, and the job is ready once it has succeeded. All
  # programs depend on it. So the schema is migrated before the programs that need
  # it start, and an apply whose migration fails changes no program.
  run_execution_token = substr(sha256("${var.image} ${var.metered} ${join(" ", var.cells_instances)}"), 0, 10)

  template {
    parallelism = 1
    task_count  = 1

    template {
      service_account = google_service_account.program["migrate"].email
      timeout         = "${local.specs["migrate"].timeoutSeconds}s"
      max_retries     = local.specs["migrate"].maxRetries

      volumes {
        name = "cloudsql"

        cloud_sql_instance {
          instances = local.instances_all
        }
      }

      containers {
        name    = "migrate"
        image   = var.image
        command = local.specs["migrate"].containers[0].command
        args    = try(local.specs["migrate"].containers[0].args, [])

        dynamic "env" {
          for_each = local.secrets["migrate"]

          content {
            name = env.key

            value_source {
              secret_key_ref {
                secret  = env.value.secret
                version = env.value.version
              }
            }
          }
        }

        dynamic "env" {
          for_each = local.env["migrate"]

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = local.specs["migrate"].containers[0].resources.limits
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
    google_secret_manager_secret_iam_member.cells,
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
      timeout         = "${local.specs[each.key].timeoutSeconds}s"
      max_retries     = local.specs[each.key].maxRetries

      volumes {
        name = "cloudsql"

        cloud_sql_instance {
          instances = local.instances_all
        }
      }

      containers {
        name    = each.key
        image   = var.image
        command = local.specs[each.key].containers[0].command
        args    = try(local.specs[each.key].containers[0].args, [])

        dynamic "env" {
          for_each = local.secrets[each.key]

          content {
            name = env.key

            value_source {
              secret_key_ref {
                secret  = env.value.secret
                version = env.value.version
              }
            }
          }
        }

        dynamic "env" {
          for_each = local.env[each.key]

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = local.specs[each.key].containers[0].resources.limits
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
