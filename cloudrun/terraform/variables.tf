variable "project" {
  type        = string
  description = "The project's id."
}

variable "region" {
  type        = string
  description = "The region of all resources."
}

variable "image" {
  type        = string
  description = "The image, by its digest or an immutable tag. A new value is a new version, which migrates first."
}

variable "worker" {
  type        = string
  default     = "pool"
  description = "What decides requests: a worker pool, which always runs, or a job every minute."

  validation {
    condition     = contains(["pool", "job"], var.worker)
    error_message = "The variable worker must be pool or job."
  }
}

variable "api_instances_min" {
  type        = number
  default     = 1
  description = "The minimum of API instances. With none, the first caller would wait for a start."

  validation {
    condition     = var.api_instances_min >= 1
    error_message = "The variable api_instances_min must be at least 1."
  }
}

variable "api_instances_max" {
  type        = number
  default     = 3
  description = "The maximum of API instances. Few large instances admit larger groups."

  validation {
    condition     = var.api_instances_max >= var.api_instances_min
    error_message = "The variable api_instances_max must be at least api_instances_min."
  }
}

variable "worker_instances" {
  type        = number
  default     = 2
  description = "Instances of the worker pool. Two, so that a restart pauses no lane."
}

variable "database_tier" {
  type        = string
  default     = "db-custom-2-7680"
  description = "The machine type of the database."
}

variable "database_availability" {
  type        = string
  default     = "REGIONAL"
  description = "REGIONAL has a standby in another zone; ZONAL has none, for a trial."
}

variable "max_connections" {
  type        = number
  default     = 400
  description = "Postgres's max_connections. It is set, not inferred: its default depends on the machine's memory."
}

variable "password_version" {
  type        = number
  default     = 1
  description = "Raise it for a new database password."
}

variable "metered" {
  type        = bool
  default     = false
  description = "METERED_COMMANDS_ENABLED of every program."
}

variable "callback_secret" {
  type        = string
  default     = ""
  description = "The id of an existing secret with the value of CHECKOUT_CALLBACK_SECRET. Empty: checkouts have no callbacks."
}

variable "cells_secret" {
  type        = string
  default     = ""
  description = "The id of an existing secret with the value of CELLS, which names this database and others. Empty: this database is the only one."
}

variable "cells_instances" {
  type        = list(string)
  default     = []
  description = "The Cloud SQL instances of the other cells, by their connection names: project:region:instance."
}

variable "notification_channels" {
  type        = list(string)
  default     = []
  description = "The notification channels of alerts, by name: projects/P/notificationChannels/N."
}

variable "deletion_protection" {
  type        = bool
  default     = true
  description = "Whether the database and the API are protected from terraform destroy."
}
