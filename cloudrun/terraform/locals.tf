locals {
  # cloudrun/alerts.yaml is the one table of what runs when and what is watched; a row is for the homes that it names.
  alerts = { for a in yamldecode(file("${path.module}/../alerts.yaml")).alerts : a.name => a if contains(a.homes, var.worker) }

  # What Cloud Scheduler starts: a worker pool sweeps, purges and recovers itself.
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

  env = merge(
    {
      LOG_FORMAT           = "cloud"
      GOOGLE_CLOUD_PROJECT = var.project
    },
    var.metered ? { METERED_COMMANDS_ENABLED = "true" } : {},
  )

  serving_env = merge(local.env, {
    # Off the public port. The collector receives the same metrics by OTLP.
    METRICS_ADDRESS             = "127.0.0.1:9090"
    OTEL_EXPORTER_OTLP_ENDPOINT = "http://localhost:4318"
    OTEL_METRIC_EXPORT_INTERVAL = "30000"
    # Below the limit of 1Gi: the programs run with GOGC 400, which knows none.
    GOMEMLIMIT = "800MiB"
  })

  # Without a worker nothing reads what an API would note of hot variants.
  api_env = merge(local.serving_env, var.worker == "job" ? { HOT_DETECT = "false" } : {})

  job_env     = merge(local.env, { GOMEMLIMIT = "400MiB" })
  bounded_env = merge(local.job_env, { ONESHOT_TIME_MAX = "50s" })

  # Connections of one process at most. An API: 10 for calls, 2 that admit (4 metered), 3 beside them, 1 for what
  # arrives, 2 for API keys, 1 that listens. A worker: 9 for drains, 5 for River and maintenance, 2 that listen. A
  # migration: 3, 1 that keeps others from migrating meanwhile, and 1 that migrates.
  connections = {
    api     = var.metered ? 21 : 19
    worker  = 16
    migrate = 5
    sweep   = 2
    purge   = 2
    recover = 4
    verify  = 4
    drain   = 9
  }

  # Twice the instances: during a rollout the old ones are there until the new ones are ready. Twice each job: an
  # execution that takes longer than its interval overlaps with the next one.
  instances = merge(
    {
      api    = 2 * var.api_instances_max
      worker = var.worker == "pool" ? 2 * var.worker_instances : 0
    },
    { for name in concat(keys(local.jobs), ["migrate"]) : name => 2 },
  )

  # For a superuser, Cloud SQL's own agents, and an operator.
  connections_reserved = 15

  connections_most = sum(concat([local.connections_reserved], [for name, n in local.instances : n * local.connections[name]]))
}
