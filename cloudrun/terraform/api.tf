resource "google_cloud_run_v2_service" "api" {
  name                = "holdfast-api"
  location            = var.region
  ingress             = "INGRESS_TRAFFIC_ALL"
  deletion_protection = var.deletion_protection
  # Every caller sends an API key instead.
  invoker_iam_disabled = true

  template {
    service_account                  = google_service_account.program["api"].email
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    max_instance_request_concurrency = local.specs["api"].containerConcurrency
    timeout                          = "${local.specs["api"].timeoutSeconds}s"

    scaling {
      min_instance_count = var.api_instances_min
      max_instance_count = var.api_instances_max
    }

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
      for_each = local.specs["api"].containers

      content {
        name       = containers.value.name
        image      = containers.key == 0 ? var.image : containers.value.image
        command    = try(containers.value.command, null)
        depends_on = containers.key == 0 ? ["collector"] : null

        dynamic "ports" {
          for_each = try(containers.value.ports, [])

          content {
            name           = ports.value.name
            container_port = ports.value.containerPort
          }
        }

        dynamic "env" {
          for_each = containers.key == 0 ? local.secrets["api"] : {}

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
          for_each = containers.key == 0 ? local.env["api"] : {}

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = containers.value.resources.limits
          # Instance-based billing: a process whose CPU is throttled inside a
          # transaction keeps its row locks.
          cpu_idle          = tobool(local.manifests["api"].spec.template.metadata.annotations["run.googleapis.com/cpu-throttling"])
          startup_cpu_boost = containers.key == 0 ? true : null
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
