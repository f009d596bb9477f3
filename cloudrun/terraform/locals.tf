locals {
  # cloudrun/alerts.yaml is the only table of schedules and alerts. A row is for
  # the homes that it names.
  alerts = { for a in yamldecode(file("${path.module}/../alerts.yaml")).alerts : a.name => a if contains(a.homes, var.worker) }

  # The jobs that Cloud Scheduler starts. A worker pool sweeps, purges and
  # recovers itself.
  schedules = { for a in local.alerts : a.job => a.schedule if can(a.schedule) }

  jobs = {
    for name, job in {
      sweep   = { command = "/oneshot", args = ["sweep"], timeout = 120, env = local.bounded_env }
      purge   = { command = "/oneshot", args = ["purge"], timeout = 120, env = local.bounded_env }
      recover = { command = "/oneshot", args = ["recover"], timeout = 120, env = local.bounded_env }
      # It reads every hold and stock once.
      verify = { command = "/oneshot", args = ["verify"], timeout = 900, env = local.job_env }
      drain  = { command = "/worker", args = [], timeout = 120, env = merge(local.bounded_env, { INVENTORY_WORKER_ONESHOT = "true" }) }
    } : name => job if contains(keys(local.schedules), name)
  }

  serving  = toset(var.worker == "pool" ? ["api", "worker"] : ["api"])
  programs = setunion(local.serving, keys(local.jobs), ["migrate"])

  # An API checks callback URLs; workers and the job recover call them.
  callback_secrets = [for secret in [var.callback_secret] : secret if secret != ""]
  callers          = toset([for program in local.programs : program if contains(["api", "worker", "recover"], program) && var.callback_secret != ""])

  env = merge(
    {
      LOG_FORMAT           = "cloud"
      GOOGLE_CLOUD_PROJECT = var.project
    },
    var.metered ? { METERED_COMMANDS_ENABLED = "true" } : {},
  )

  serving_env = merge(local.env, {
    # Not on the public port. The collector receives the same metrics by OTLP.
    METRICS_ADDRESS             = "127.0.0.1:9090"
    OTEL_EXPORTER_OTLP_ENDPOINT = "http://localhost:4318"
    OTEL_METRIC_EXPORT_INTERVAL = "30000"
    # Below the limit of 1Gi: with GOGC 400 alone the heap could exceed it.
    GOMEMLIMIT = "800MiB"
  })

  # Without a worker no process reads the arrival rates that an API would write.
  api_env = merge(local.serving_env, { LIVE_CONNECTIONS_MAX = "500" }, var.worker == "job" ? { HOT_DETECT = "false" } : {})

  job_env     = merge(local.env, { GOMEMLIMIT = "400MiB" })
  bounded_env = merge(local.job_env, { ONESHOT_TIME_MAX = "50s" })

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
    { for name in concat(keys(local.jobs), ["migrate"]) : name => 2 },
  )

  # For a superuser, Cloud SQL's agents, and an operator.
  connections_reserved = 15

  connections_most = sum(concat([local.connections_reserved], [for name, n in local.instances : n * local.connections[name]]))
}
