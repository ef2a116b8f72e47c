"""What a program written with the Python client does: lists, watches, patches, conflicts, deletes."""
import json
import sys

from kubernetes import client, watch
from kubernetes.client.rest import ApiException

configuration = client.Configuration()
configuration.host = sys.argv[1]
api = client.ApiClient(configuration)
core = client.CoreV1Api(api)
custom = client.CustomObjectsApi(api)

custom.create_cluster_custom_object("apiextensions.k8s.io", "v1", "customresourcedefinitions", json.loads(sys.argv[2]))
assert client.VersionApi(api).get_code().major == "1"

metadata = client.V1ObjectMeta(name="m", labels={"a": "b"})
core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=metadata, data={"k": "v"}))
maps = core.list_namespaced_config_map("default", label_selector="a=b")
assert [m.metadata.name for m in maps.items] == ["m"], maps
seen = [e["type"] for e in watch.Watch().stream(
    core.list_namespaced_config_map, "default", resource_version="0", timeout_seconds=1)]
assert seen == ["ADDED"], seen
core.patch_namespaced_config_map("m", "default", {"data": {"k": "w"}})

stale = core.read_namespaced_config_map("m", "default")
core.patch_namespaced_config_map("m", "default", {"metadata": {"labels": {"x": "1"}}})
try:
    core.replace_namespaced_config_map("m", "default", stale)
    raise SystemExit("a stale replace went through")
except ApiException as error:
    assert error.status == 409, error

widget = {"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
place = ("example.io", "v1", "default", "widgets")
custom.create_namespaced_custom_object(*place, widget)
custom.patch_namespaced_custom_object_status(*place, "w", {"status": {"phase": "Done"}})
assert custom.get_namespaced_custom_object(*place, "w")["status"]["phase"] == "Done"
try:
    custom.create_namespaced_custom_object(*place, {**widget, "metadata": {"name": "x"}, "spec": {"size": -1}})
    raise SystemExit("an invalid widget went through")
except ApiException as error:
    assert error.status == 422 and "spec.size" in error.body, error
custom.delete_namespaced_custom_object(*place, "w")
print("done")
