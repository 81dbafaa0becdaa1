/** A role of the machine: credentials that the service asks for again and again, whose rights change. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestObjectStore } from '../support/object-storage/object-store.ts';
import type { BucketPolicy } from './bucket-policy.ts';
import { limitedCredentials } from './limited-credentials.ts';
import type { Env } from './program.ts';

/** So close to its end that the SDK asks anew for every request. */
const LIFE_MS = 60_000;

export class BucketRole {
  readonly #store: TestObjectStore;
  readonly #server: Server;
  #answer = '';

  private constructor(store: TestObjectStore) {
    this.#store = store;
    this.#server = createServer((_, response) => {
      const Expiration = new Date(Date.now() + LIFE_MS).toISOString();
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ ...JSON.parse(this.#answer), Expiration }));
    });
  }

  static async open(store: TestObjectStore, policy: BucketPolicy): Promise<BucketRole> {
    const role = new BucketRole(store);
    await role.allow(policy);
    role.#server.listen(0, '127.0.0.1');
    await once(role.#server, 'listening');
    return role;
  }

  /** This from now on, and nothing else. */
  async allow(policy: BucketPolicy): Promise<void> {
    const keys = await limitedCredentials(this.#store, JSON.stringify(policy));
    this.#answer = JSON.stringify({
      AccessKeyId: keys.AWS_ACCESS_KEY_ID,
      SecretAccessKey: keys.AWS_SECRET_ACCESS_KEY,
      Token: keys.AWS_SESSION_TOKEN,
    });
  }

  /** As the SDK's chain of credentials finds it. */
  get env(): Env {
    const { port } = this.#server.address() as AddressInfo;
    return { AWS_CONTAINER_CREDENTIALS_FULL_URI: `http://127.0.0.1:${port}/` };
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }
}
