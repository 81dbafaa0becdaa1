/** Credentials of a MinIO that may do no more than a policy says: its STS, asked by signed HTTP. */
import assert from 'node:assert/strict';
import { createHash, createHmac } from 'node:crypto';
import type { TestObjectStore } from '../support/object-storage/object-store.ts';
import { IDENTITY } from '../support/object-storage/object-store.ts';
import type { Env } from './program.ts';

const SERVICE = 'sts';
const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const mac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();

/** As the SDK's chain of credentials reads them. */
export async function limitedCredentials(store: TestObjectStore, policy: string): Promise<Env> {
  const body = new URLSearchParams({
    Action: 'AssumeRole',
    Version: '2011-06-15',
    DurationSeconds: '3600',
    Policy: policy,
  }).toString();
  const answer = await fetch(store.endpoint, {
    method: 'POST',
    headers: signed(new URL(store.endpoint).host, body),
    body,
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  const fieldOf = (name: string) => new RegExp(`<${name}>([^<]+)<`).exec(text)?.[1] ?? '';
  return {
    AWS_ACCESS_KEY_ID: fieldOf('AccessKeyId'),
    AWS_SECRET_ACCESS_KEY: fieldOf('SecretAccessKey'),
    AWS_SESSION_TOKEN: fieldOf('SessionToken'),
  };
}

/** Signature version 4 of a form to the root of the host. */
function signed(host: string, body: string): Record<string, string> {
  const time = new Date().toISOString().replace(/[-:]|\.\d{3}/g, '');
  const day = time.slice(0, 8);
  const scope = `${day}/${IDENTITY.region}/${SERVICE}/aws4_request`;
  const type = 'application/x-www-form-urlencoded';
  const headers = `content-type:${type}\nhost:${host}\nx-amz-date:${time}\n`;
  const names = 'content-type;host;x-amz-date';
  const request = ['POST', '/', '', headers, names, hash(body)].join('\n');
  const toSign = ['AWS4-HMAC-SHA256', time, scope, hash(request)].join('\n');
  const key = [day, IDENTITY.region, SERVICE, 'aws4_request'].reduce<string | Buffer>(
    mac,
    `AWS4${IDENTITY.secretAccessKey}`,
  );
  const signature = mac(key, toSign).toString('hex');
  return {
    'content-type': type,
    'x-amz-date': time,
    authorization: `AWS4-HMAC-SHA256 Credential=${IDENTITY.accessKeyId}/${scope}, SignedHeaders=${names}, Signature=${signature}`,
  };
}
