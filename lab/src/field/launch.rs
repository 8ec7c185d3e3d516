//! Keys of a launcher's section that change no result: names, places, limits, mail, logs.
//!
//! In: nothing. Out: the lists. Must stay true: sorted, in lower case with `_`. A key that counts devices has a row of
//! its own. A key that can set another key, a variable of the environment or the code that runs is not listed: an audit
//! reports it as unknown.

/// Sections of launchers.
pub(crate) const LAUNCHERS: &[&str] = &["launch", "launcher", "sbatch", "slurm", "stool"];

/// Parts of such a section. The keys in them are listed below.
#[rustfmt::skip]
pub(crate) const LAUNCH_PARTS: &[&str] = &[
    "cluster", "container", "docker", "hydra", "job", "k8s", "kubernetes", "logging", "logs", "mail", "network",
    "notifications", "output", "queue", "rdzv", "rendezvous", "resources", "sbatch", "scheduler", "skypilot", "slurm",
    "srun", "ssh", "stool", "submitit", "torchrun",
];

/// Keys that hold a list, or a map with keys of the user's own.
#[rustfmt::skip]
pub(crate) const LAUNCH_LISTS: &[&str] = &[
    "annotations", "constraint", "constraints", "container_mounts", "exclude", "exclude_nodes", "file_mounts", "hosts",
    "labels", "licenses", "mail_type", "mounts", "node_list", "node_selector", "nodelist", "nodes_exclude", "ports",
    "rdzv_conf", "rdzv_configs", "tags", "tolerations", "volumes",
];

/// Keys with one value: those of Lingua's `StoolArgs`, options of sbatch, srun and torchrun, and names that submitit,
/// SkyPilot, Hydra's launchers and clusters use. A prefix `slurm_` is left out.
#[rustfmt::skip]
pub(crate) const LAUNCH_KEYS: &[&str] = &[
    "account", "acctg_freq", "anaconda", "array_parallelism", "author", "auto_requeue", "autostop", "backend",
    "backoff_limit", "bb", "bbf", "begin", "billing", "chdir", "cloud", "cluster", "cluster_name", "clusters",
    "comment", "conda", "conda_env", "constraint", "container", "container_id", "container_image", "container_name",
    "container_workdir", "contiguous", "copy_code", "core_spec", "cores", "cores_per_socket", "cpu", "cpu_bind",
    "cpu_freq", "cpus", "cpus_per_gpu", "cpus_per_task", "cwd", "date", "deadline", "delay_boot", "dependency",
    "description", "dirs_exists_ok", "disk_size", "disk_tier", "distribution", "docker_image", "dry_run", "dump_base",
    "dump_dir", "email", "enabled", "engine", "env_name", "error", "exclude", "exclusive", "experiment",
    "experiment_name", "extra", "extra_node_info", "features", "folder", "force", "get_user_env", "gid", "gpu_bind",
    "gpu_freq", "gres_flags", "group", "hint", "hold", "host", "hostfile", "hostname", "id", "image", "image_id",
    "job_dir", "job_id", "job_name", "jobname", "kill_on_bad_exit", "kill_on_invalid_dep", "kind", "label", "launcher",
    "local_addr", "log_dir", "log_file", "log_level", "log_path", "logdir", "logs_dir", "mail_user", "main_process_ip",
    "main_process_port", "master_addr", "master_port", "max_num_timeout", "max_restarts", "max_retries", "mcs_label",
    "mem", "mem_bind", "mem_gb", "mem_per_cpu", "mem_per_gpu", "memory", "mincpus", "mode", "monitor_interval", "name",
    "namespace", "ncpu", "ncpus", "network", "nice", "no_kill", "no_requeue", "node_rank", "nodefile", "note", "notes",
    "num_cpus", "open_mode", "output", "output_dir", "overcommit", "override", "oversubscribe", "owner", "parsable",
    "partition", "pod_name", "poll_interval", "pool", "port", "power", "preempt", "prefer", "priority",
    "priority_class", "profile", "project", "project_name", "propagate", "provider", "qos", "queue", "queue_name",
    "quiet", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_port", "rdzv_timeout", "reboot", "redirects", "region",
    "requeue", "reservation", "restart_policy", "restarts", "retries", "role", "run_id", "run_name", "save_dir",
    "scheduler", "segment", "service_account", "shared_folder", "signal", "signal_delay_s", "sockets_per_node",
    "spot_recovery", "spread_job", "standalone", "start_method", "stderr", "stderr_to_stdout", "stdout",
    "submitit_folder", "switches", "tag", "team", "tee", "test_only", "thread_spec", "threads_per_core", "time",
    "time_limit", "time_min", "timelimit", "timeout", "timeout_hour", "timeout_min", "tmp", "tmp_dir", "ttl", "type",
    "uid", "unbuffered", "usage", "use_min_nodes", "use_spot", "use_srun", "user", "user_name", "username", "venv",
    "verbose", "wait", "wait_all_nodes", "walltime", "wckey", "work_dir", "workdir", "working_dir", "zone",
];

/// Keys of a launcher that name the program it starts, or files and shell commands that can set anything.
#[rustfmt::skip]
pub(crate) const LAUNCH_COMMANDS: &[&str] = &[
    "additional_parameters", "app", "args", "arguments", "argv", "cli", "cmd", "command", "commands", "config",
    "config_dir", "config_file", "config_name", "config_path", "configs", "entry_point", "entrypoint", "epilog",
    "exec", "executable", "export", "export_file", "flags", "main", "module", "overrides", "params", "program",
    "prolog", "run", "script", "setup", "task", "wrap",
];
