/** From a submission over REST to its notification, through whole control planes. */
import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { describeOnDatabases } from '../../../test/support/database.ts';
import { until } from '../services/dispatch/harness.ts';
import { Receiver } from '../services/notification/receiver.ts';
import { type Caller, pictureBody, Replicas } from '../support/replicas.ts';

const SECRET = 'a raw callback secret of the tests';

describeOnDatabases('notifications', dialect => {
  const replicas = Replicas.use(dialect, {
    env: {
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
      MATTING_WEBHOOK_SCHEDULE_MS: '0,50,50',
    },
  });
  let receiver: Receiver;
  let caller: Caller;

  before(async () => {
    receiver = await Receiver.open(SECRET);
    caller = await replicas.createCaller(10);
    await replicas.addNode();
  });
  after(() => receiver[Symbol.asyncDispose]());

  const hook = () => ({ callback_url: receiver.url(), callback_secret: SECRET });

  async function finalCallback(jobId: string, replica: number) {
    const read = () => replicas.get(caller, `/v1/matting/jobs/${jobId}`, { replica });
    await until(async () => (await read()).body.callback.status !== 'pending');
    return (await read()).body;
  }

  it('come for a synchronous request too, with the job as GET shows it', async () => {
    const answer = await replicas.post(caller, pictureBody(hook()), { replica: 1 });
    assert.equal(answer.status, 200);
    const { job_id: jobId } = answer.body;
    for (const replica of [0, 1]) {
      const { callback, ...job } = await finalCallback(jobId, replica);
      assert.deepEqual(
        [callback.status, callback.attempts, callback.last_status_code, callback.next_attempt_at],
        ['delivered', 1, 204, null],
      );
      assert.ok(Date.parse(callback.last_attempt_at) >= Date.parse(job.finished_at) - 1);
      const [delivery, ...more] = receiver.of(jobId);
      assert.deepEqual(more, []);
      assert.ok(delivery);
      assert.equal(delivery.signatureHolds, true);
      assert.deepEqual(JSON.parse(delivery.body.toString()), {
        type: 'matting.job.succeeded',
        timestamp: job.finished_at,
        job_id: jobId,
        data: job,
      });
    }
  });

  it('report a failure, and show the caller when they fail themselves', async () => {
    const [node] = replicas.nodes;
    assert.ok(node);
    node.script = async exchange => exchange.fail('PROCESSING_FAILED');
    receiver.answer = (_delivery, response) => void response.writeHead(500).end();
    const path = '/v1/matting/jobs';
    const { body } = await replicas.post(caller, pictureBody(hook()), { path });
    const job = await finalCallback(body.job_id, 1);
    assert.deepEqual(
      [job.status, job.callback.status, job.callback.attempts, job.callback.last_status_code],
      ['failed', 'failed', 3, 500],
    );
    const [delivery] = receiver.of(body.job_id);
    assert.ok(delivery);
    assert.equal(JSON.parse(delivery.body.toString()).type, 'matting.job.failed');
  });

  it('are refused an address beside the allowed one, and nothing is reserved', async () => {
    const before = (await replicas.get(caller, '/v1/account')).body;
    const callback_url = `http://127.0.0.2:${receiver.port}/`;
    const refused = await replicas.post(caller, pictureBody({ ...hook(), callback_url }));
    assert.deepEqual([refused.status, refused.body.code], [400, 'INVALID_CALLBACK']);
    assert.deepEqual((await replicas.get(caller, '/v1/account')).body, before);
  });
});
