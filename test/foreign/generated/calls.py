"""One call of each kind by the client that openapi-python-client made of /v1/openapi.json."""
import base64
import sys
import time
import uuid
from io import BytesIO

from matting_service_client import AuthenticatedClient
from matting_service_client import models as m
from matting_service_client.api.account import list_keys, read_account, read_usage
from matting_service_client.api.batches import (
    cancel_matting_batch,
    list_matting_batches,
    read_matting_batch,
    read_matting_batch_results,
    submit_matting_batch,
    submit_matting_batch_again,
)
from matting_service_client.api.matting import (
    correct_matting_job,
    delete_matting_job,
    list_matting_jobs,
    list_models,
    read_matting_job,
    submit_matting,
    submit_matting_job,
)
from matting_service_client.api.results import download_result
from matting_service_client.types import File

POLLS_MAX = 300
url, key, picture = sys.argv[1:]
data = open(picture, "rb").read()
client = AuthenticatedClient(base_url=url, token=key, timeout=120, raise_on_unexpected_status=True)


def call(kind, api, *args, **given):
    answer = api.sync(*args, client=client, idempotency_key=str(uuid.uuid4()), **given)
    assert isinstance(answer, kind), answer
    return answer


def file():
    return File(payload=BytesIO(data), file_name="photo.jpg")


def finished(api, name, open_kinds):
    for _ in range(POLLS_MAX):
        found = call(object, api, name)
        if getattr(found, "status") not in open_kinds:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{name} does not end")


text = base64.b64encode(data).decode()
wanted = m.MattingRequest(image_base64=text, correctable=True, output_width=200)
job = call(m.SucceededJob, submit_matting, body=wanted)
assert job.result.width == 200, job
call(m.SucceededJob, submit_matting, body=m.MattingForm(image_file=file(), crop="true"))
raw = call(m.SucceededJob, submit_matting, body=file(), output_format="webp", quality="80")
assert raw.result.format_ == "webp", raw
body = m.MattingRequest(image_base64=text, reference="of Python")
opened = call(m.QueuedJob, submit_matting_job, body=body)
assert isinstance(finished(read_matting_job, opened.job_id, ("queued", "processing")), m.SucceededJob)
assert len(call(m.JobList, list_matting_jobs, reference="of Python").jobs) == 1

hints = m.CorrectionRequest(background="white", keep=[m.HintShapeType0(box=[0, 0, 50, 50])])
call((m.QueuedJob, m.SucceededJob), correct_matting_job, job.job_id, body=hints)
form = m.CorrectionForm(background_file=file())
call((m.QueuedJob, m.SucceededJob), correct_matting_job, job.job_id, body=form)

items = [m.BatchRequestItemsItem(image_url=f"{url}/none.jpg", reference="lost")]
batch = call(m.Batch, submit_matting_batch, body=m.BatchRequest(items=items, scale="80%"))
finished(read_matting_batch, batch.batch_id, ("queued", "processing"))
assert b"IMAGE_DOWNLOAD_FAILED" in call(bytes, read_matting_batch_results, batch.batch_id)
again = call(m.Batch, submit_matting_batch_again, batch.batch_id, body=m.BatchAgainRequest())
call(m.Batch, cancel_matting_batch, again.batch_id)
call(m.BatchList, list_matting_batches)

for kind, api in (
    (m.Account, read_account),
    (m.Usage, read_usage),
    (m.Keys, list_keys),
    (m.Models, list_models),
):
    call(kind, api)
wrong = call(m.Problem, submit_matting, body=m.MattingRequest(image_base64="AAAA"))
assert wrong.code == m.ErrorCode.UNSUPPORTED_IMAGE_FORMAT, wrong
result = download_result.sync(job.result.url.rsplit("/", 1)[1], client=client)
assert result.payload.read(4) == b"\x89PNG"
call(m.ExpiredJob, delete_matting_job, job.job_id)
