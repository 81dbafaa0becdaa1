/** The bucket user of docs/security.md: its policy is enough, none of it can be left out, and it opens nothing else. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import ava from 'ava';
import { at } from '../support/at.ts';
import {
  createObjectStore,
  IDENTITY,
  missingStore,
  type TestObjectStore,
} from '../support/object-storage/object-store.ts';
import type { Env } from '../support/program.ts';
import { ROOT } from '../support/running-service.ts';
import { isNotTested } from '../support/skip.ts';
import {
  type BucketPolicy,
  limitedCredentials,
  PREFIX,
  policyFor,
  without,
} from './bucket-user.ts';

const test = ava.serial.skipIf(isNotTested(missingStore('minio')));

const execute = promisify(execFile);

let store: TestObjectStore;
let policy: BucketPolicy;
ava.serial.before(async () => {
  store = await createObjectStore('minio');
  policy = policyFor(store.bucket);
});
ava.serial.after.always(() => store?.close());

/** What `storage check` finds, as this user. */
async function check(env: Env): Promise<{ readonly code: number; readonly out: string }> {
  const options = {
    cwd: ROOT,
    env: {
      ...env,
      PATH: process.env.PATH ?? '',
      MATTING_STORAGE_URL: store.url({ prefix: PREFIX }),
    },
  };
  const args = ['control-plane/src/cli/main.ts', 'storage', 'check'];
  return await execute(process.execPath, args, options).then(
    ({ stdout }) => ({ code: 0, out: stdout }),
    ({ code, stdout, stderr }) => ({ code, out: `${stdout}${stderr}` }),
  );
}

test('may do what the service asks', async t => {
  const { code, out } = await check(await limitedCredentials(store, JSON.stringify(policy)));
  t.is(code, 0, out);
});

test('needs every right that it has', async t => {
  const actions = policy.Statement.flatMap(({ Action }) => Action);
  t.true(actions.length >= 6);
  for (const action of actions) {
    const less = JSON.stringify(without(policy, action));
    const { code, out } = await check(await limitedCredentials(store, less));
    t.not(code, 0, `${action} is not needed`);
    t.regex(out, /FAIL|matting:/, action);
  }
});

test('opens nothing beside its prefix', async t => {
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
