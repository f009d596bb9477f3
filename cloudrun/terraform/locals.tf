locals {
  # cloudrun/alerts.yaml is the only table of schedules and alerts. A row is for
  # the homes that it names.
  alerts = { for a in yamldecode(file("${path.module}/../alerts.yaml")).alerts : a.name => a if contains(a.homes, var.worker) }

  # The jobs that Cloud Scheduler starts. A worker pool sweeps, purges and
  # recovers itself.
  schedules = { for a in local.alerts : a.job => a.schedule if can(a.schedule) }

  jobs = toset(keys(local.schedules))

  serving  = toset(var.worker == "pool" ? ["api", "worker"] : ["api"])
  programs = setunion(local.serving, local.jobs, ["migrate"])

  # cloudrun/yaml describes the programs. What depends on the project or on a
  # variable is added here. A job's manifest has one template more.
  manifests = { for name in local.programs : name => yamldecode(file("${path.module}/../yaml/${name}.yaml")) }
  specs     = { for name, m in local.manifests : name => try(m.spec.template.spec.template.spec, m.spec.template.spec) }

  env = {
    for name, spec in local.specs : name => merge(
      { for e in spec.containers[0].env : e.name => e.value if can(e.value) },
      { GOOGLE_CLOUD_PROJECT = var.project },
      var.metered ? { METERED_COMMANDS_ENABLED = "true" } : {},
      # Without a worker no process reads the arrival rates that an API would write.
      name == "api" && var.worker == "job" ? { HOT_DETECT = "false" } : {},
    )
  }

  # An API checks callback URLs; workers and the job recover call them.
  callers = toset([for program in local.programs : program if contains(["api", "worker", "recover"], program) && var.callback_secret != ""])

  secrets = {
    for name in local.programs : name => merge(
      var.cells_secret == "" ? {
        DATABASE_URL = {
          secret  = google_secret_manager_secret.database_url.secret_id
          version = google_secret_manager_secret_version.database_url.version
        }
      } : { CELLS = { secret = var.cells_secret, version = "latest" } },
      contains(local.callers, name) ? { CHECKOUT_CALLBACK_SECRET = { secret = var.callback_secret, version = "latest" } } : {},
    )
  }

  # The instances of all cells, and the condition that a resource is one of them.
  instances_all = concat([google_sql_database_instance.holdfast.connection_name], var.cells_instances)
  databases = join(" || ", concat(
    ["resource.name == 'projects/${var.project}/instances/${google_sql_database_instance.holdfast.name}'"],
    [for name in var.cells_instances : "resource.name == 'projects/${split(":", name)[0]}/instances/${split(":", name)[2]}'"],
  ))

  # Connections of one process at most. An API: 7 for calls, 3 for groups of verbs,
  # 2 that admit (4 if metered), 3 for wakes, the load and replay lookups, 1 for
  # arrival rates, 2 for API keys, 1 that listens. A worker: 11 for drains, 7 for
  # River, maintenance and checkouts, 2 that listen. A migration: 3, 1 that locks out other
  # migrations, and 1 that migrates.
  connections = {
    api     = var.metered ? 25 : 23
    worker  = 20
    migrate = 5
    sweep   = 2
    purge   = 2
    recover = 4
    verify  = 4
    drain   = 11
  }

  # Twice the instances, because during a rollout the old ones run until the new
  # ones are ready. Twice each job, because an execution that takes longer than its
  # interval overlaps with the next one.
  instances = merge(
    {
      api    = 2 * var.api_instances_max
      worker = var.worker == "pool" ? 2 * var.worker_instances : 0
    },
    { for name in setunion(local.jobs, ["migrate"]) : name => 2 },
  )

  # For a superuser, Cloud SQL's agents, and an operator.
  connections_reserved = 15

  connections_most = sum(concat([local.connections_reserved], [for name, n in local.instances : n * local.connections[name]]))
}
