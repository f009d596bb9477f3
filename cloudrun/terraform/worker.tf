resource "google_cloud_run_v2_worker_pool" "worker" {
  count = var.worker == "pool" ? 1 : 0

  name     = "holdfast-worker"
  location = var.region
  # It has no state, and worker = "job" removes it.
  deletion_protection = false

  # Manual scaling: a change makes no revision. Before a sale, raise it as far as
  # the connections allow.
  scaling {
    manual_instance_count = var.worker_instances
  }

  template {
    service_account = google_service_account.program["worker"].email

    volumes {
      name = "cloudsql"

      cloud_sql_instance {
        instances = local.instances_all
      }
    }

    volumes {
      name = "collector"

      secret {
        secret = google_secret_manager_secret.collector.secret_id

        items {
          version = google_secret_manager_secret_version.collector.version
          path    = "config.yaml"
        }
      }
    }

    # The program, then the collector.
    dynamic "containers" {
      for_each = local.specs["worker"].containers

      content {
        name       = containers.value.name
        image      = containers.key == 0 ? var.image : containers.value.image
        command    = try(containers.value.command, null)
        depends_on = containers.key == 0 ? ["collector"] : null

        dynamic "env" {
          for_each = containers.key == 0 ? local.secrets["worker"] : {}

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
          for_each = containers.key == 0 ? local.env["worker"] : {}

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = containers.value.resources.limits
        }

        startup_probe {
          period_seconds    = containers.value.startupProbe.periodSeconds
          timeout_seconds   = containers.value.startupProbe.timeoutSeconds
          failure_threshold = containers.value.startupProbe.failureThreshold

          http_get {
            path = containers.value.startupProbe.httpGet.path
            port = containers.value.startupProbe.httpGet.port
          }
        }

        dynamic "liveness_probe" {
          for_each = try([containers.value.livenessProbe], [])

          content {
            period_seconds    = liveness_probe.value.periodSeconds
            timeout_seconds   = liveness_probe.value.timeoutSeconds
            failure_threshold = liveness_probe.value.failureThreshold

            http_get {
              path = liveness_probe.value.httpGet.path
              port = liveness_probe.value.httpGet.port
            }
          }
        }

        # A manifest names the database's socket in an annotation.
        volume_mounts {
          name       = try(containers.value.volumeMounts[0].name, "cloudsql")
          mount_path = try(containers.value.volumeMounts[0].mountPath, "/cloudsql")
        }
      }
    }
  }

  depends_on = [
    google_cloud_run_v2_job.migrate,
    google_project_iam_member.telemetry,
    google_secret_manager_secret_iam_member.callback,
    google_secret_manager_secret_iam_member.collector,
  ]
}
