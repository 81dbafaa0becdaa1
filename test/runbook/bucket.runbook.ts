/** Needs: object-storage, operations. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import ava from 'ava';
import { ROOT } from '../running-service.ts';
import { at } from '../support/at.ts';
import { type Fault, FaultProxy } from '../support/object-storage/fault-proxy.ts';
import {
  createObjectStore,
  IDENTITY,
  missingStore,
  type TestObjectStore,
} from '../support/object-storage/object-store.ts';
import { isNotTested } from '../support/skip.ts';
import {
  type BucketPolicy,
  BucketRole,
  limitedCredentials,
  PREFIX,
  policyFor,
  without,
} from './bucket-user.ts';
import { type Env, Installation, pictureBase64, SKIP } from './installation.ts';
import { type Procedure, proceduresOn } from './procedures.ts';

const test = ava.serial;

const CHECK = 'matting storage check';
const CLOCK_OFF_MS = 3_600_000;

const skip = SKIP || missingStore('minio');

const execute = promisify(execFile);
const tried = test.skipIf(isNotTested(skip));
const service = new Installation();
const procedure = proceduresOn(service, test, skip);
let store: TestObjectStore;
let proxy: FaultProxy;
let role: BucketRole;
let policy: BucketPolicy;
test.before(async () => {
  store = await createObjectStore('minio');
  proxy = await FaultProxy.start(store.endpoint);
  policy = policyFor(store.bucket);
  role = await BucketRole.open(store, policy);
});
service.use(test, () => ({
  planes: 2,
  nodes: 2,
  env: {
    ...role.env,
    MATTING_STORAGE_URL: store.url({ prefix: PREFIX, endpoint: proxy.endpoint }),
  },
}));
test.after.always(async () => {
  await role?.close();
  await proxy?.close();
  await store?.close();
});

/** Callers are refused, the alert fires with `outcome`, and the check prints `said`. */
async function fails(page: Procedure, outcome: string, said: RegExp): Promise<void> {
  const image_base64 = await pictureBase64();
  const refused = async () => {
    const { status } = await service.post({ image_base64 });
    assert.equal(status, 503);
  };
  const firing = await page.fires(refused);
  assert.deepEqual([...new Set(firing.map(labels => labels.outcome))], [outcome]);
  const { out, err } = await page.run(CHECK, {}, { code: 1 });
  assert.match(`${out}${err}`, said);
}

async function worksAgain(page: Procedure): Promise<void> {
  await page.run(CHECK);
  await service.ready();
  await page.isOver();
  await service.until('callers are served', async () => {
    const { status, job } = await service.post({ image_base64: await pictureBase64() });
    return status === 202 && (await service.final(job.job_id)).status === 'succeeded';
  });
}

async function met(fault: Fault, attempt: () => Promise<void>): Promise<void> {
  proxy.inject(fault);
  await attempt().finally(() => proxy.liftAll());
}

procedure('MattingBucketFails', async (page, t) => {
  const kept = await service.cutOut();
  await role.allow(without(policy, 's3:PutObject'));
  await fails(page, 'denied', /s3:PutObject/);
  await role.allow(policy);
  await worksAgain(page);
  await met({ kind: 'clock', offMs: CLOCK_OFF_MS, refused: true }, () =>
    fails(page, 'clock', /clock differs/),
  );
  await worksAgain(page);
  await met({ kind: 'answer', status: 503, code: 'SlowDown' }, () =>
    fails(page, 'slow-down', /SlowDown/),
  );
  await worksAgain(page);
  // The job's image is stored before the store fails.
  for (const node of service.nodes) await node.stop();
  await service.ready(0);
  const jobId = await service.submit();
  await store.kill();
  for (const node of service.nodes) node.start();
  await fails(page, 'unavailable', /FAIL/);
  const { status, error, credits } = await service.final(jobId);
  t.deepEqual([status, error?.retryable, credits.charged], ['failed', true, 0]);
  t.is((await fetch(kept.result?.url ?? '')).status, 503);
  await store.start();
  await worksAgain(page);
});

async function check(env: Env): Promise<{ readonly code: number; readonly out: string }> {
  const options = {
    cwd: ROOT,
    env: {
      ...env,
      PATH: process.env.PATH ?? '',
      MATTING_STORAGE_URL: store.url({ prefix: PREFIX }),
    },
  };
  const args = ['control-plane/cli.ts', 'storage', 'check'];
  return await execute(process.execPath, args, options).then(
    ({ stdout }) => ({ code: 0, out: stdout }),
    ({ code, stdout, stderr }) => ({ code, out: `${stdout}${stderr}` }),
  );
}

tried('the bucket user may do what the service asks', async t => {
  const { code, out } = await check(await limitedCredentials(store, JSON.stringify(policy)));
  t.is(code, 0, out);
});

tried('the bucket user needs every right that it has', async t => {
  const actions = policy.Statement.flatMap(({ Action }) => Action);
  t.true(actions.length >= 6);
  for (const action of actions) {
    const less = JSON.stringify(without(policy, action));
    const { code, out } = await check(await limitedCredentials(store, less));
    t.not(code, 0, `${action} is not needed`);
    t.regex(out, /FAIL|matting:/, action);
  }
});

tried('the bucket user opens nothing beside its prefix', async t => {
  const env = await limitedCredentials(store, JSON.stringify(policy));
  const client = new S3Client({
    endpoint: store.endpoint,
    region: IDENTITY.region,
    forcePathStyle: true,
    credentials: {
      accessKeyId: at(Object.values(env), 0),
      secretAccessKey: at(Object.values(env), 1),
      sessionToken: at(Object.values(env), 2),
    },
  });
  const key = { Bucket: store.bucket, Key: 'another/secret' };
  await store.client.send(new PutObjectCommand({ ...key, Body: 'of another service' }));
  await t.throwsAsync(client.send(new GetObjectCommand(key)), { name: 'AccessDenied' });
  await t.throwsAsync(client.send(new PutObjectCommand({ ...key, Body: 'no' })), {
    name: 'AccessDenied',
  });
  client.destroy();
});
