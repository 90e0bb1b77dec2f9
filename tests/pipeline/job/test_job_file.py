"""A job file is checked as a whole: every fault at once, each with its line and the nearest right name."""

from __future__ import annotations

import base64
import json
import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest

from shardway.pipeline.job import JobFileError, deliveries, load_job
from tests.pipeline.job.job_files import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]

TEN_FAULTS = """\
nam = "orders"
checkpoint = "checkpoints/orders"

[source]
streamNam = "orders"
maxRecordsPerTrigger = "many"

[decode]
format = "jsn"

[dead_letters]
path = "lake/orders"
discard = true

[deduplicate]
keys = ["valu.order_id"]
window = "ten minutes"

[transform]
function = "nothere:clean"

[[sinks]]
format = "parquet"

[[sinks]]
format = "json"
path = "lake/${NOPE}"
optoins = { compression = "gzip" }
"""


def faults(path: Path, **environment: str) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        load_job(path, environment)
    assert str(caught.value) == "\n".join(caught.value.faults)
    return [fault.removeprefix(f"{path}:") for fault in caught.value.faults]


def test_ten_faults_are_ten_messages_with_lines_and_the_nearest_names(write_job: Write) -> None:
    assert faults(write_job(TEN_FAULTS)) == [
        "1: nam: there is no nam here: did you mean name?",
        "5: source.streamNam: there is no option streamNam: did you mean streamName?",
        "6: source.maxRecordsPerTrigger: maxRecordsPerTrigger must be a whole number, not 'many'",
        "9: decode.format: must be json, text, bytes, avro, protobuf, confluent, glue, cloudwatch-logs, dms or"
        " dynamodb-change: did you mean json?",
        "13: dead_letters.discard: is given beside path: give one of them",
        "16: deduplicate.keys[0]: there is no column valu.order_id before the transform: did you mean value?",
        '17: deduplicate.window: must be a time span like "10 seconds": a number and seconds, minutes, hours or days',
        "20: transform.function: there is no module nothere in the folder of the job file or where Python looks"
        " (sys.path)",
        "22: sinks[0]: path is missing: where the parquet files go",
        "27: sinks[1].path: the environment has no NOPE",
        "28: sinks[1].optoins: there is no optoins here: did you mean options?",
    ]


def test_a_good_job(write_job: Write) -> None:
    job = load_job(write_job()).job
    assert job.name == "orders"
    assert job.source == {"streamName": "orders", "region": "eu-west-1"}
    assert [(sink.format, sink.path) for sink in job.sinks] == [("parquet", "lake/orders")]


@pytest.mark.parametrize(
    ("change", "to", "fault"),
    [
        ('name = "orders"', "name = ", r"1: this is not TOML: invalid value"),
        ('name = "orders"', 'name = "a"\nname = "b"', r"2: this is not TOML: cannot overwrite a value"),
        ('"orders"\nregion', '"orders"\nstream = 1\nregion', r"6: source.stream: there is no option stream: did"),
        ('streamName = "orders"\n', "", r"4: source: streamName \(or streamARN\) is required"),
        ('region = "eu-west-1"', "region = [1]", r"6: source.region: must be text, a number, true or false, not an"),
        ('region = "eu-west-1"', 'aws_access_key_id = "x"', r"6: source.aws_access_key_id: there is no option"),
        ('region = "eu-west-1"', 'awsSecretKey = "x"', r"6: source.awsSecretKey: awsSecretKey is not taken.*AWS SDK"),
        ('region = "eu-west-1"', 'checkpointLocation = "x"', r"6: source.checkpointLocation: stands beside"),
        ("amount DECIMAL(10,2)", "amount DECIML(10,2)", r"10: decode.schema: .* DECIML, .* mean DECIMAL\?"),
        ("amount DECIMAL(10,2)", "order_id INT", r"10: decode.schema: has two fields order_id"),
        ("amount DECIMAL(10,2)", "amount", r"10: decode.schema: gives field amount no type"),
        ("amount DECIMAL(10,2)", "amount DECIMAL(10,2", r"10: decode.schema: has brackets that do not match"),
        ("amount DECIMAL(10,2)", "a INT,, b INT", r"10: decode.schema: has a field without a name"),
        ("amount DECIMAL(10,2)", "stream INT", r"10: decode.schema: has a field stream, which is a col"),
        ('schema = "order_id STRING NOT NULL, amount DECIMAL(10,2)"', "", r"8: decode: schema .* is missing: json"),
        ('schema = "', 'schema_file = "', r"10: decode.schema_file: there is no file order_id"),
        ('format = "json"\n', 'format = "json"\ncompression = "gz"\n', r"10: decode.compression: must be gzip, z"),
        ('format = "json"\n', 'format = "json"\nopened_bytes_max = 1\n', r"10: decode.opened_bytes_max: has no me"),
        ('format = "json"\n', 'format = "json"\ncompression = "auto"\nopened_bytes_max = 0\n',
         r"11: decode.opened_bytes_max: must be from 1 to 1073741824"),
        ('format = "json"\n', 'format = "dms"\n', r"10: decode.schema: has no meaning for dms"),
        ('format = "json"\n', 'format = "dynamodb_change"\n', r"9: decode.format: .* did you mean dynamodb-change\?"),
        ('path = "lake/dead"', "", r"12: dead_letters: give it a path, a stream or discard = true"),
        ('[dead_letters]\npath = "lake/dead"\n', "", r"1: dead_letters is missing: not every record is json"),
        ('[dead_letters]', '[stamps]\nwindows = "1 hour"\n[dead_letters]',
         r"13: stamps.windows: there is no windows here: did you mean window?"),
        ('path = "lake/dead"', 'stream = { streamName = "dead", bufferBytes = 20000000 }',
         r"13: dead_letters.stream.*there is no option bufferBytes: did you mean bufferBytesMax?"),
        ('path = "lake/dead"', 'path = "lake/orders/"', r"13: dead_letters.path: is the same as sinks\[0\].path"),
        ('format = "parquet"\npath = "lake/orders"\n', "", r"15: sinks\[0\]: give a sink either a format or"),
        ('[[sinks]]\nformat = "parquet"\npath = "lake/orders"\n', "", r"1: sinks is missing"),
        ('[[sinks]]\nformat = "parquet"\npath = "lake/orders"\n', "[sinks]\n", r"15: sinks: must be an array"),
        ('path = "lake/orders"', 'path = "x"\ntable = "y"', r"18: sinks\[0\].table: is given beside path"),
        ('path = "lake/orders"', 'path = "x"\nmode = "overwrite"', r"18: sinks\[0\].mode: has no meaning for a folder"),
        ('format = "parquet"', 'format = "console"', r"17: sinks\[0\].path: has no meaning for console"),
        ('format = "parquet"\npath = "lake/orders"', 'function = "json:dmps"',
         r"16: sinks\[0\].function: module json has no function dmps: did you mean dumps\?"),
        ('[dead_letters]', '[deduplicate]\nkeys = ["value.id"]\nwindow = "1 hour"\n[dead_letters]',
         r"13: deduplicate.keys\[0\]: value has no field id \(there are amount, order_id\)"),
        ('[dead_letters]', '[transform]\nsql = "SELECT 1"\nfunction = "json:dumps"\n[dead_letters]',
         r"14: transform.function: is given beside sql"),
        ('[dead_letters]', "[transform]\n[dead_letters]", r"12: transform: give it sql, sql_file or a function"),
        ('[dead_letters]', '[trigger]\nevery = "1 fortnight"\n[dead_letters]', r"13: trigger.every: must be a time"),
        ('[dead_letters]', '[trigger]\nevery = "1 second"\navailable_now = true\n[dead_letters]',
         r"13: trigger.every: contradicts available_now"),
    ],
)  # fmt: skip
def test_one_fault_is_one_message(write_job: Write, change: str, to: str, fault: str) -> None:
    assert change in GOOD
    found = faults(write_job(GOOD.replace(change, to, 1)))
    assert len(found) == 1, found
    assert re.match(fault, found[0]), found[0]


DDL = 'schema = "id BIGINT"\n'
SERVICE = GOOD.replace('schema = "order_id STRING NOT NULL, amount DECIMAL(10,2)"\n', "")


@pytest.mark.parametrize(
    ("format", "more", "fault"),
    [
        (
            "bytes",
            'compression = "gzip"\n',
            "dead_letters is missing: not every record can be opened as gzip: give",
        ),
        ("dms", "", "dead_letters is missing: not every record is dms: give it a path, a stream or discard = true"),
        ("cloudwatch-logs", 'compression = "gzip"\n', "decode.compression: has no meaning for cloudwatch-logs, whose"),
        ("confluent", DDL, "decode: the address of the schema registry is missing: registry = { url ="),
        ("confluent", 'registry = { url = "https://r" }', "decode: schema (or schema_file) is missing: confluent"),
        ("confluent", f'{DDL}registry = {{ url = "r:8081" }}', "decode.registry.url: write its address, as in"),
        ("confluent", f'{DDL}registry = {{ url = "http://u:p@r" }}', "decode.registry.url: leave the password out of"),
        ("confluent", f'{DDL}registry = {{ url = "http://r", region = "eu-west-1" }}', "region: has no meaning for"),
        ("confluent", f'{DDL}registry = {{ url = "http://r", wait = "soon" }}', "registry.wait: must be a time span"),
        (
            "confluent",
            f'{DDL}registry = {{ url = "http://r" }}\n',
            "dead_letters is missing: not every record is in a frame of confluent, with a schema that the registry has",
        ),
        ("confluent", f'{DDL}opened_bytes_max = 9\nregistry = {{ url = "http://r" }}', "opened_bytes_max: has no"),
        ("glue", f'{DDL}registry = {{ url = "http://r" }}', "decode.registry.url: has no meaning for glue"),
        ("glue", f'{DDL}registry = {{ region = "eu west" }}', "decode.registry.region: 'eu west' is no AWS region"),
        ("glue", f'{DDL}registry = {{ endpoint_url = "r:1" }}', "registry.endpoint_url: must begin with http"),
        ("glue", 'schema = "id BIGNT"', "decode.schema: gives field id the type BIGNT"),
        ("dms", 'registry = { url = "http://r" }', "decode.registry: has no meaning for dms"),
        (
            "dms",
            "[deduplicate]\nkeys = ['value.ids']\nwindow = '1 hour'\n",
            "deduplicate.keys[0]: value has no field",
        ),
    ],
)
def test_a_format_without_a_schema_is_checked_by_its_own(write_job: Write, format: str, more: str, fault: str) -> None:
    text = SERVICE.replace('format = "json"\n', f'format = "{format}"\n{more}', 1)
    text = text.replace('[dead_letters]\npath = "lake/dead"\n', "") if "dead_letters" in fault else text
    (found,) = faults(write_job(text))
    assert fault in found


def test_bytes_that_are_not_opened_need_no_dead_letters(write_job: Write) -> None:
    text = SERVICE.replace('"json"', '"bytes"').replace('[dead_letters]\npath = "lake/dead"\n', "")
    assert load_job(write_job(text)).job.decode.takes_all


@pytest.mark.parametrize(
    "second",
    ["out", "./out/", "file:{here}/out", "FILE://{here}//out", "linked", "x/../out", "{here}/out", "out/day=1"],
)
def test_one_folder_spelled_twice(
    write_job: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    monkeypatch.chdir(tmp_path)
    how = "overlaps with the partitions of" if "=" in second else "is the same as"
    (tmp_path / "out").mkdir()
    (tmp_path / "linked").symlink_to("out", target_is_directory=True)
    two = f'path = "out"\n\n[[sinks]]\nformat = "json"\npath = "{second.format(here=tmp_path)}"'
    assert faults(write_job(GOOD.replace('path = "lake/orders"', two))) == [
        f"21: sinks[1].path: {how} sinks[0].path: each needs a place of its own"
    ]


@pytest.mark.parametrize(
    ("change", "to", "fault"),
    [
        ("lake/dead", "S3A://Lake//orders/", "13: dead_letters.path: is the same as sinks[0].path"),
        ("checkpoints/orders", "s3n://lake/x/../orders", "17: sinks[0].path: is the same as the Spark checkpoint"),
    ],
)
def test_one_place_elsewhere_spelled_twice(write_job: Write, change: str, to: str, fault: str) -> None:
    found = faults(write_job(GOOD.replace("lake/orders", "s3://lake/orders").replace(change, to)))
    assert len(found) == 1, found
    assert found[0].startswith(fault)


def test_a_module_that_cannot_be_imported(write_job: Write, tmp_path: Path) -> None:
    (tmp_path / "broken_orders_module.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "raising_orders_module.py").write_text("raise RuntimeError('no')\n")
    for module, said in (
        ("broken_orders_module", "cannot be imported: there is no module nothing_of_this_name"),
        ("raising_orders_module", "cannot be imported: RuntimeError: no"),
    ):
        text = GOOD.replace('format = "parquet"\npath = "lake/orders"', f'function = "{module}:write"')
        assert [said in fault for fault in faults(write_job(text))] == [True]


def test_files_that_are_no_job(write_job: Write, tmp_path: Path) -> None:
    assert faults(write_job("")) == [
        "1: name is missing",
        "1: checkpoint is missing",
        "1: source is missing",
        "1: sinks is missing",
    ]
    missing = tmp_path / "missing.toml"
    with pytest.raises(JobFileError, match="cannot be read: No such file"):
        load_job(missing)
    with pytest.raises(JobFileError, match="Is a directory"):
        load_job(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'name = "a"\ncheckpoint = "caf\xe9"\n')
    assert faults(latin) == ["2: this is not UTF-8"]
    large = tmp_path / "large.toml"
    large.write_text("#" * (2**20 + 1))
    with pytest.raises(JobFileError, match="at most 1,048,576 bytes"):
        load_job(large)


# --- values from the environment ------------------------------------------------------------------


def test_values_from_the_environment(write_job: Write) -> None:
    text = GOOD.replace('"eu-west-1"', '"${REGION:-eu-west-1}"\nmaxRecordsPerTrigger = "${MAX}"')
    text = text.replace('"lake/orders"', '"${LAKE}/$${orders}"') + '[trigger]\navailable_now = "${ONCE}"\n'
    job = load_job(write_job(text), {"LAKE": "s3://lake", "MAX": "500", "ONCE": "true", "REGION": ""}).job
    assert job.source == {"streamName": "orders", "region": "eu-west-1", "maxRecordsPerTrigger": "500"}
    assert job.sinks[0].path == "s3://lake/${orders}"
    assert job.trigger.available_now is True


def test_a_name_that_is_not_set_has_the_nearest_one(write_job: Write) -> None:
    text = GOOD.replace('"lake/orders"', '"${LAKE_DRI}/${}"')
    assert faults(write_job(text), LAKE_DIR="x") == [
        "17: sinks[0].path: the environment has no LAKE_DRI: did you mean LAKE_DIR?",
        "17: sinks[0].path: ${ is followed by no name and }: write ${NAME} or ${NAME:-default}, or $${",
    ]


def test_secrets_never_show(write_job: Write) -> None:
    text = GOOD.replace('format = "parquet"\npath = "lake/orders"', 'format = "jdbc"\n[sinks.options]')
    text += 'url = "jdbc:x://db/${DATABASE}"\npassword = "plain-but-secret"\nuser = "${USER_OF_DB}"\n'
    text += '[spark]\n"spark.hadoop.x" = "${KEY_OF_SPARK}"\n'
    environment = {"DATABASE": "hidden-db", "USER_OF_DB": "hidden-user", "KEY_OF_SPARK": "hidden-key"}
    job_file = load_job(write_job(text), environment)
    said = "plain-but-secret hidden-db hidden-user hidden-key stays"
    assert job_file.secrets.hide(said) == "*** *** *** *** stays"
    assert not any(secret in repr(job_file.secrets) for secret in said.split()[:-1])
    told = " ".join(str(one) for one in deliveries(job_file.job))
    assert not any(secret in told for secret in said.split()[:-1])
    assert job_file.secrets.options == {"url", "password", "user", "spark.hadoop.x"}


PEM = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nq7rJx0s1Z+secret/line==\n"
    "-----END PRIVATE KEY-----\n"
)
HARD = "pa ss/wö'rd#\"%1\\x"


@pytest.mark.parametrize("secret", [PEM, HARD, "Abc/+def=ghi", f"  {HARD}\n"])
@pytest.mark.parametrize(
    "form",
    [
        str,
        str.strip,
        repr,
        json.dumps,
        shlex.quote,
        quote,
        quote_plus,
        lambda text: quote(text.strip(), safe=""),
        lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text.strip(), safe="")),
        lambda text: quote(quote(text.strip(), safe=""), safe=""),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: repr(text.strip().encode()),
        lambda text: "\n  ".join(text.strip().splitlines()),
        lambda text: max(text.splitlines(), key=len).strip(),
        lambda text: repr(max(text.splitlines(), key=len).strip()),
    ],
)
def test_a_secret_is_hidden_in_each_form_in_which_a_message_may_quote_it(
    write_job: Write, secret: str, form: Callable[[str], str]
) -> None:
    text = GOOD.replace(
        'format = "parquet"\npath = "lake/orders"', 'format = "jdbc"\n[sinks.options]\nkey = "${KEY_PEM}"'
    )
    secrets = load_job(write_job(text), {"KEY_PEM": secret}).secrets
    said = secrets.hide(f"the driver says: {form(secret)} is wrong")
    for piece in ("MIIEvQ", "q7rJx0s1Z", "secret/line", "ss/w", "ss%2Fw", "ss%2fw", "Abc/", "Abc%2F", "ghi"):
        assert piece not in said
    assert said.startswith("the driver says: ")
    assert said.endswith(" is wrong")


def test_a_private_key_is_hidden_wherever_it_comes_from(write_job: Write) -> None:
    said = load_job(write_job(GOOD), {}).secrets.hide(f"cannot read {PEM.replace('MII', 'XYZ')}: no")
    assert said == "cannot read ***\n: no"


def test_a_fault_does_not_show_a_secret(write_job: Write) -> None:
    text = GOOD.replace('"eu-west-1"', '"${MY_API_TOKEN}"')
    assert faults(write_job(text), MY_API_TOKEN="not a region") == [
        "6: source.region: region must look like eu-west-1, not '***'"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"parquet"', '"parket"', r"sinks\[0\].format: Spark has no format parket: did you mean parquet\?"),
        ('"parquet"', '"detla"', r"sinks\[0\].format: Spark has no format detla: did you mean delta\?"),
        (
            'path = "lake/orders"',
            'path = "lake/orders"\npartition_by = ["houre"]',
            r"partition_by\[0\]: there is no column houre: did you mean hour\?",
        ),
        ('streamName = "orders"', 'streamName = "a,b"', "streamName holds several names: a source reads one stream"),
        ('streamName = "orders"', 'streamName = "a b"', "streamName must be 1 to 128 letters"),
        (
            'region = "eu-west-1"',
            'startingTimestamp = "1795559947363"',
            "must be epoch seconds, and '1795559947363' looks like milliseconds: give 1795559947.363",
        ),
        ('region = "eu-west-1"', 'consumerMode = "efo"', "consumerMode is not taken: this source reads by GetRecords"),
    ],
)
def test_a_mistake_has_its_hint_at_the_check(write_job: Write, old: str, new: str, said: str) -> None:
    assert old in GOOD
    (fault,) = faults(write_job(GOOD.replace(old, new)))
    assert re.search(said, fault)


def test_the_right_options_are_listed_once_and_of_one_direction(write_job: Write) -> None:
    text = GOOD.replace('region = "eu-west-1"', "xylophone = 1\nzebra = 2\nqueue = 3")
    (fault,) = faults(write_job(text))
    assert "there are no options xylophone, zebra, queue; those for reading are streamName, " in fault
    assert fault.count("startingPosition") == fault.count("region") == 1
    assert "bufferBytesMax" not in fault


# --- what the sinks promise -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "how", "why"),
    [
        ('format = "parquet"\npath = "a"', "exactly once", "replaces"),
        ('format = "json"\npath = "a"', "exactly once", "replaces"),
        ('format = "parquet"\ntable = "a"', "at least once", "written again"),
        ('format = "delta"\npath = "a"', "exactly once", "writes nothing"),
        ('format = "delta"\npath = "a"\nmode = "overwrite"', "at least once", "takes the place"),
        ('format = "iceberg"\ntable = "lake.a.b"', "exactly once", "writes nothing"),
        ('format = "jdbc"\nmode = "overwrite"', "at least once", "takes the place"),
        ('format = "console"', "at least once", "shown again"),
        ('function = "json:dumps"', "at least once", "goes by the id"),
    ],
)
def test_what_a_sink_promises(write_job: Write, sink: str, how: str, why: str) -> None:
    job = load_job(write_job(GOOD.replace('format = "parquet"\npath = "lake/orders"', sink))).job
    mine, dead = deliveries(job)
    assert (mine.how, why in mine.why) == (how, True)
    assert (dead.sink, dead.how) == ("dead letters parquet lake/dead", "exactly once")


def test_a_format_of_a_package_is_taken_as_it_is(write_job: Write) -> None:
    for name in ("com.example.Own", "mongodb", "bigquery"):
        own = load_job(write_job(GOOD.replace('"parquet"', f'"{name}"'))).job
        assert deliveries(own)[0].note == ""


def test_discarded_dead_letters_are_told(write_job: Write) -> None:
    job = load_job(write_job(GOOD.replace('path = "lake/dead"', "discard = true"))).job
    assert deliveries(job)[-1].how == "not kept"
