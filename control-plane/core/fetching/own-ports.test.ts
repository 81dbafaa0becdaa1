/** The operator allows the network in which the service itself listens. */
import ava from 'ava';
import { pictureBody, Replicas } from '../test/support/replicas.ts';

const test = ava.serial;

const replicas = Replicas.use(test, 'sqlite', {
  replicas: 1,
  env: { MATTING_ALLOW_PRIVATE_ADDRESSES: 'true' },
});

test('a download reads no metrics, which others at its address may', async t => {
  await replicas.addNode();
  const caller = await replicas.createCaller(5);
  const metrics = `http://127.0.0.1:${replicas.plane(0).ports.metrics}/metrics`;
  t.is((await fetch(metrics)).status, 200);
  for (const body of [{ image_url: metrics }, pictureBody({ background_url: metrics })]) {
    const { status, body: problem } = await replicas.post(caller, body);
    t.deepEqual([status, problem.code], [400, 'IMAGE_DOWNLOAD_FAILED'], JSON.stringify(problem));
    t.regex(problem.detail, /401/);
  }
});
