/** The bucket user's policy from docs/security.md, and a role whose rights change. */
import assert from 'node:assert/strict';
import { createHash, createHmac } from 'node:crypto';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { IDENTITY, type TestObjectStore } from '../support/object-storage/object-store.ts';
import type { Env } from '../support/program.ts';
import { codeOf, readPage } from './runbook-page.ts';

/** For the service's objects, in policy and URL. */
export const PREFIX = 'production';

interface Statement {
  readonly Action: readonly string[];
  readonly Resource: string;
}
export interface BucketPolicy {
  readonly Version: string;
  readonly Statement: readonly Statement[];
}

/** The page's policy, for this bucket and PREFIX. */
export function policyFor(bucket: string): BucketPolicy {
  const section = readPage('docs/security.md').split('\n### The bucket user\n')[1] ?? '';
  const [own = ''] = section.split(/\n#{2,3} /);
  const json = codeOf(own).filter(line => /^[{}\]]/.test(line));
  assert.ok(json.length > 0, 'docs/security.md has no policy');
  const text = json.join('\n').replaceAll('bucket/prefix', `${bucket}/${PREFIX}`);
  return JSON.parse(text.replaceAll(':::bucket"', `:::${bucket}"`));
}

export const without = (policy: BucketPolicy, action: string): BucketPolicy => ({
  ...policy,
  Statement: policy.Statement.map(each => ({
    ...each,
    Action: each.Action.filter(name => name !== action),
  })).filter(({ Action }) => Action.length > 0),
});

const SERVICE = 'sts';
const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const mac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();

/** As variables of the SDK's credential chain. */
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

/** Signature version 4, for a form sent to `/`. */
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

/** So short that the SDK requests new ones each time. */
const LIFE_MS = 60_000;

export class BucketRole {
  readonly #store: TestObjectStore;
  #source!: LoopbackSource;
  #answer = '';

  private constructor(store: TestObjectStore) {
    this.#store = store;
  }

  static async open(store: TestObjectStore, policy: BucketPolicy): Promise<BucketRole> {
    const role = new BucketRole(store);
    await role.allow(policy);
    role.#source = await openSource((_, response) => {
      const Expiration = new Date(Date.now() + LIFE_MS).toISOString();
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ ...JSON.parse(role.#answer), Expiration }));
    });
    return role;
  }

  async allow(policy: BucketPolicy): Promise<void> {
    const keys = await limitedCredentials(this.#store, JSON.stringify(policy));
    this.#answer = JSON.stringify({
      AccessKeyId: keys.AWS_ACCESS_KEY_ID,
      SecretAccessKey: keys.AWS_SECRET_ACCESS_KEY,
      Token: keys.AWS_SESSION_TOKEN,
    });
  }

  get env(): Env {
    return { AWS_CONTAINER_CREDENTIALS_FULL_URI: `${this.#source.url}/` };
  }

  async close(): Promise<void> {
    await this.#source[Symbol.asyncDispose]();
  }
}
