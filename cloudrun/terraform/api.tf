resource "google_cloud_run_v2_service" "api" {
  name                = "holdfast-api"
  location            = var.region
  ingress             = "INGRESS_TRAFFIC_ALL"
  deletion_protection = var.deletion_protection
  # Every caller sends an API key instead.
  invoker_iam_disabled = true

  template {
    service_account       = google_service_account.program["api"].email
    execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
    # The largest value: a waiting call costs little, and a group of 500 costs
    # hardly more than a group of 5.
    max_instance_request_concurrency = 1000
    # A caller waits at most 30 s for an outcome. A stream of events or an import
    # takes longer.
    timeout = "300s"

    scaling {
      min_instance_count = var.api_instances_min
      max_instance_count = var.api_instances_max
    }

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
      name       = "api"
      image      = var.image
      command    = ["/api"]
      depends_on = ["collector"]

      ports {
        name           = "http1"
        container_port = 8080
      }

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
        for_each = local.api_env

        content {
          name  = env.key
          value = env.value
        }
      }

      resources {
        limits = { cpu = "2", memory = "1Gi" }
        # Instance-based billing: a process whose CPU is throttled inside a
        # transaction keeps its row locks.
        cpu_idle          = false
        startup_cpu_boost = true
      }

      # HTTP, because the default TCP probe succeeds before the program has its
      # database. Half a minute, because a program waits DATABASE_WAIT_MAX (15 s)
      # for its database.
      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 30

        http_get {
          path = "/readyz"
          port = 8080
        }
      }

      # /livez does not query the database, so a restart of the database does not
      # restart the instance.
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
        limits   = { cpu = "1", memory = "512Mi" }
        cpu_idle = false
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
