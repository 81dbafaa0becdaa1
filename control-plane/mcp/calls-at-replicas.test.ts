/** An agent's calls alternate between two control planes, as after a load balancer. */
import { assertBalanced } from '@matting/core/test/fixtures.ts';
import { Replicas } from '@matting/core/test/support/replicas.ts';
import ava from 'ava';
import { mcp } from './mcp.ts';
import { Agent, base64, image, put } from './test/mcp-client.ts';

const test = ava.serial;

const replicas = Replicas.use(test, 'sqlite', { packages: [mcp] });

test('calls that are repeated at either replica make one job and cost one credit', async t => {
  await replicas.addNode();
  const { accountId, token } = await replicas.createCaller(5);
  const agents = await Promise.all(
    [0, 1].map(replica => Agent.at(replicas.plane(replica).ports.http, token)),
  );
  for (const more of [{}, { idempotency_key: 'mine' }]) {
    const given = { image_base64: base64(20_000), ...more };
    const called = await Promise.all(
      Array.from({ length: 12 }, (_, index) => agents[index % 2]!.remove(given)),
    );
    t.is(new Set(called.map(({ fields }) => fields.result?.url)).size, 1, called[0]?.text);
    const [{ fields }] = called as [(typeof called)[0]];
    t.is((await agents[1]!.call('get_job', { job_id: fields.job_id })).fields.status, 'succeeded');
  }
  t.deepEqual(await replicas.stores.ledger.balances(accountId), { available: 3, reserved: 0 });
  await assertBalanced(replicas.stores);
});

test('an upload that one replica makes comes to the other, and serves both', async t => {
  const { token } = await replicas.createCaller(5);
  const ports = [0, 1].map(replica => replicas.plane(replica).ports.http) as [number, number];
  const [first, second] = await Promise.all(ports.map(port => Agent.at(port, token)));
  const { image_id, upload_url } = (await first!.call('create_upload')).fields;
  const file = image(20_000);
  t.is((await put(ports[1], upload_url, file)).status, 201);
  const made = await first!.remove({ image_id });
  t.false(made.isError, made.text);
  const again = await second!.remove({ image_base64: file.toString('base64') });
  t.is(again.fields.job_id, made.fields.job_id);
});
