# Statistics as OpenMetrics text, read by the strict parser of Prometheus' own Python client.
# packages: python3 python3-prometheus-client
# version: sort --version
. "$(dirname "$0")/on.sh"

seq 200000 > numbers
on sort -r numbers | digest
EBB_STATS=openmetrics on sort -r numbers 2> page | digest
case $LIBRARY in
    *libebbmalloc.so) ;;
    *) echo none > page ;; # no library to write it
esac
/usr/bin/python3 - <<'PYTHON'
from prometheus_client.openmetrics.parser import text_string_to_metric_families

page = open("page").read()
if page != "none\n":
    families = {family.name: family for family in text_string_to_metric_families(page)}
    sample = lambda name: families[name].samples[0]
    info = sample("ebbmalloc")
    assert info.name == "ebbmalloc_info" and info.labels["mode"] and info.labels["why"], info
    assert families["ebbmalloc_live_bytes"].type == "gauge"
    assert families["ebbmalloc_live_bytes"].unit == "bytes"
    assert families["ebbmalloc_allocated_bytes"].type == "counter"
    assert sample("ebbmalloc_allocated_bytes").name == "ebbmalloc_allocated_bytes_total"
    assert sample("ebbmalloc_allocated_bytes").value >= sample("ebbmalloc_live_bytes").value > 0
    assert families["ebbmalloc_user_seconds"].unit == "seconds"
    assert 0 < sample("ebbmalloc_elapsed_seconds").value < 60
    blocks = sum(
        int(each.labels["block_bytes"]) * each.value
        for each in families["ebbmalloc_class_live"].samples
    )
    assert blocks + sample("ebbmalloc_large_bytes").value == sample("ebbmalloc_live_bytes").value
print("understood")
PYTHON
