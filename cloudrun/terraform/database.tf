resource "google_project_service" "api" {
  for_each = toset([
    "cloudscheduler.googleapis.com",
    "cloudtrace.googleapis.com",
    "iam.googleapis.com",
    "monitoring.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "sqladmin.googleapis.com",
  ])

  service            = each.key
  disable_on_destroy = false
}

resource "google_sql_database_instance" "holdfast" {
  name                = "holdfast"
  region              = var.region
  database_version    = "POSTGRES_17"
  deletion_protection = var.deletion_protection

  settings {
    # Only Enterprise Plus has the managed pooler, which is not needed: the
    # programs use LISTEN, which does not work in transaction mode.
    edition               = "ENTERPRISE"
    tier                  = var.database_tier
    availability_type     = var.database_availability
    disk_type             = "PD_SSD"
    disk_autoresize       = true
    disk_autoresize_limit = 0

    database_flags {
      name  = "max_connections"
      value = tostring(var.max_connections)
    }

    # No address is authorised: Cloud Run's proxy connects, with a service
    # account.
    ip_configuration {
      ipv4_enabled = true
      ssl_mode     = "ENCRYPTED_ONLY"
    }

    backup_configuration {
      enabled                        = true
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = 7
    }
  }

  lifecycle {
    precondition {
      condition = local.connections_most <= var.max_connections
      error_message = join(" ", [
        "The programs can need ${local.connections_most} connections and the database has ${var.max_connections}:",
        join(" + ", [for name, n in local.instances : "${n} ${name} × ${local.connections[name]}" if n > 0]),
        "+ ${local.connections_reserved} reserved, each program twice as often as it runs, for rollouts.",
        "Lower api_instances_max or worker_instances, or raise max_connections with the machine's memory.",
      ])
    }
  }

  depends_on = [google_project_service.api]
}

# The database and its user are deleted with their instance, because Postgres
# drops neither while there are connections or owned objects.
resource "google_sql_database" "holdfast" {
  name            = "holdfast"
  instance        = google_sql_database_instance.holdfast.name
  deletion_policy = "ABANDON"
}

# The password is made here, written to the secret, and read from the secret for
# the user. So an apply that failed between the two can be repeated. The password
# is neither in the plan nor in the state.
ephemeral "random_password" "database" {
  length  = 40
  special = false
}

resource "google_secret_manager_secret" "database_url" {
  secret_id = "holdfast-database-url"

  replication {
    auto {}
  }

  depends_on = [google_project_service.api]
}

resource "google_secret_manager_secret_version" "database_url" {
  secret = google_secret_manager_secret.database_url.id
  # Cloud Run puts the socket at /cloudsql/<connection name>/.s.PGSQL.5432.
  secret_data_wo         = "postgres://holdfast:${ephemeral.random_password.database.result}@/holdfast?host=/cloudsql/${google_sql_database_instance.holdfast.connection_name}"
  secret_data_wo_version = var.password_version
  deletion_policy        = "DISABLE"

  lifecycle {
    create_before_destroy = true
  }
}

ephemeral "google_secret_manager_secret_version" "database_url" {
  secret  = google_secret_manager_secret.database_url.id
  version = google_secret_manager_secret_version.database_url.version
}

resource "google_sql_user" "holdfast" {
  name                = "holdfast"
  instance            = google_sql_database_instance.holdfast.name
  password_wo         = regex("^postgres://holdfast:([^@]+)@", ephemeral.google_secret_manager_secret_version.database_url.secret_data)[0]
  password_wo_version = var.password_version
  deletion_policy     = "ABANDON"
}

resource "google_secret_manager_secret" "collector" {
  secret_id = "holdfast-collector"

  replication {
    auto {}
  }

  depends_on = [google_project_service.api]
}

# The file is not secret, but Cloud Run mounts files from secrets.
resource "google_secret_manager_secret_version" "collector" {
  secret      = google_secret_manager_secret.collector.id
  secret_data = file("${path.module}/../collector.yaml")
}
