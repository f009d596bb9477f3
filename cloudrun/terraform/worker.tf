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
        instances = [google_sql_database_instance.holdfast.connection_name]
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

    containers {
      name       = "worker"
      image      = var.image
      command    = ["/worker"]
      depends_on = ["collector"]

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
        for_each = local.callback_secrets

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
        for_each = local.serving_env

        content {
          name  = env.key
          value = env.value
        }
      }

      resources {
        limits = { cpu = "2", memory = "1Gi" }
      }

      # A pool receives no calls and no PORT, so the probes use the worker's
      # default, 8080.
      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 30

        http_get {
          path = "/readyz"
          port = 8080
        }
      }

      # Fails if no tick of a lane has ended for 60 s.
      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 3

        http_get {
          path = "/livez"
          port = 8080
        }
      }

      volume_mounts {
        name       = "cloudsql"
        mount_path = "/cloudsql"
      }
    }

    containers {
      name  = "collector"
      image = var.collector_image

      resources {
        limits = { cpu = "1", memory = "512Mi" }
      }

      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 30

        http_get {
          path = "/"
          port = 13133
        }
      }

      volume_mounts {
        name       = "collector"
        mount_path = "/etc/otelcol-google"
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
