"""Edits of Horovod's launcher that hide the environment of ranks from other users, and its services from the network.

`plugin/horovod/shims`, private_environment.py and listening.py, has the implementation.
"""

from __future__ import annotations

from paceline.horovod.edits import Edit

_GLOO_RUN = "horovod/runner/gloo_run.py"
_LAUNCH = "horovod/runner/launch.py"
_TASK = "horovod/runner/task_fn.py"
_DRIVER_SERVICE = "horovod/runner/driver/driver_service.py"
_SERVERS = "horovod/runner/http/http_server.py"
_ELASTIC_RENDEZVOUS = "horovod/runner/elastic/rendezvous.py"
_SERVICE = "horovod/runner/common/util/network.py"

_PRIVATE = "from horovod._paceline import private_environment\n"
_EXECUTE = "exit_code = safe_shell_exec.execute(command,"
_RANK = "def _exec_command_fn(settings):"
_TASKS = "def _launch_task_servers(all_host_names, local_host_names, driver_addresses,"

ENVIRONMENT_EDITS: tuple[Edit, ...] = (
    # Ranks: the command keeps its parts, and is started without the environment in its text.
    Edit(
        _GLOO_RUN,
        "return slot_info_to_command",
        "replace",
        f"{_PRIVATE}return lambda slot_info: private_environment.Command(\n"
        "    slot_info_to_command(slot_info), {**create_slot_env_vars(slot_info), **env}, run_command)",
        within="def _slot_info_to_command_fn(run_command, env):",
    ),
    Edit(
        _GLOO_RUN,
        "if host_address not in local_addresses:",
        "before",
        f"{_PRIVATE}start = private_environment.of(command, host_address not in local_addresses)\n"
        "command = start.command",
        within=_RANK,
    ),
    Edit(
        _GLOO_RUN,
        _EXECUTE,
        "replace",
        "exit_code = safe_shell_exec.execute(*start.shell_and_environment(command),",
        within=_RANK,
    ),
    # Task services, which probe for an interface that hosts share: their settings contain the job's key.
    Edit(
        _DRIVER_SERVICE,
        "if host_name not in local_host_names:",
        "before",
        f"{_PRIVATE}start = private_environment.of_task(command, host_name not in local_host_names)\n"
        "command = start.command",
        within=_TASKS,
    ),
    Edit(
        _DRIVER_SERVICE,
        "args_list.append([command])",
        "replace",
        "args_list.append([start.shell_and_environment(command)])",
        within=_TASKS,
    ),
    Edit(_DRIVER_SERVICE, _EXECUTE, "replace", "exit_code = safe_shell_exec.execute(*command,", within=_TASKS),
    Edit(
        _TASK,
        "settings = codec.loads_base64(sys.argv[4])",
        "replace",
        f"{_PRIVATE}settings = codec.loads_base64(private_environment.task_settings(sys.argv[4]))",
    ),
    # Elastic ranks send the key of their service, which the rendezvous server would return to any client.
    Edit(
        _ELASTIC_RENDEZVOUS,
        "super(RendezvousHandler, self)._put_value(scope, key, value)",
        "replace",
        "if scope != PUT_WORKER_ADDRESSES:\n    super(RendezvousHandler, self)._put_value(scope, key, value)",
    ),
)

# HTTPServer's own method looks up this host's name, which may take long and is not needed.
_BIND = "    server_bind = socketserver.TCPServer.server_bind"
_ELASTIC = (
    "def launch_gloo_elastic(command_or_func, exec_command, settings, env, get_common_interfaces, rendezvous, "
    "executable):"
)

LOOPBACK_EDITS: tuple[Edit, ...] = (
    # The two servers of the launcher listen on the address that ranks get.
    Edit(
        _SERVERS,
        "class RendezvousHTTPServer(socketserver.ThreadingMixIn, HTTPServer, object):",
        "after",
        _BIND,
    ),
    Edit(_SERVERS, "class KVStoreHTTPServer(HTTPServer, object):", "after", _BIND),
    # Inherited from a server of files, it would tell names and sizes of files in the working directory.
    Edit(
        _SERVERS,
        "class KVStoreHandler(SimpleHTTPRequestHandler):",
        "after",
        "    def do_HEAD(self):\n        self.send_status_code(405)\n",
    ),
    Edit(
        _SERVERS,
        "def start(self, handler_cls=RendezvousHandler):",
        "replace",
        "def start(self, handler_cls=RendezvousHandler, address=''):",
    ),
    Edit(_SERVERS, "addr, handler_cls, self._verbose))", "replace", "(address, addr[1]), handler_cls, self._verbose))"),
    Edit(_SERVERS, "def start_server(self):", "replace", "def start_server(self, address=''):"),
    Edit(
        _SERVERS,
        "addr, KVStoreHandler, self.verbose))",
        "replace",
        "(address, addr[1]), KVStoreHandler, self.verbose))",
    ),
    Edit(
        _GLOO_RUN,
        "global_rendezv_port = rendezvous.start()",
        "replace",
        "global_rendezv_port = rendezvous.start(address=server_ip)",
    ),
    # Elastic: that address is known later, and no client needs the rendezvous server before ranks are started.
    Edit(_GLOO_RUN, "global_rendezv_port = rendezvous.start(handler)", "replace", "", within=_ELASTIC),
    Edit(
        _GLOO_RUN,
        "server_ip = network.get_driver_ip(nics)",
        "after",
        "global_rendezv_port = rendezvous.start(handler, server_ip)",
        within=_ELASTIC,
    ),
    Edit(
        _GLOO_RUN,
        "run_func_server_port = run_func_server.start_server()",
        "replace",
        "run_func_server_port = run_func_server.start_server(server_ip)",
        within=_ELASTIC,
    ),
    Edit(
        _LAUNCH,
        "run_func_server_port = run_func_server.start_server()",
        "replace",
        "run_func_server_port = run_func_server.start_server(driver_ip)",
    ),
    # The service of each elastic rank, and the task services.
    Edit(_SERVICE, "self._server, _ = find_port(", "before", "from horovod._paceline import listening"),
    Edit(
        _SERVICE,
        "addr, self._make_handler()))",
        "replace",
        "(listening.address_of(nics), addr[1]), self._make_handler()))",
    ),
)
