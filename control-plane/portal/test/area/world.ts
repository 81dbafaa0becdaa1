/** Two accounts with people of every role. */
import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import {
  BASE_URL,
  type ScopedRoute,
  type TestAppOptions,
} from '@matting/core/test/support/test-app.ts';
import type { ExecutionContext, SerialFn } from 'ava';
import type { NewLink } from '../../people/link-store.ts';
import { ROLES, type Role } from '../../session/roles.ts';
import { createSecret, hashOfSecret } from '../../session/secret.ts';
import type { Stores } from '../fixtures.ts';
import { linkUse, newLink, newSession, OPERATOR } from '../people.ts';
import { openTestApp, type PortalApp } from '../portal-app.ts';
import { Person } from './person.ts';

export type Member = Person & {
  readonly userId: string;
  readonly sessionId: string;
  readonly mail: string;
  readonly secret: string;
};

export interface AccountWorld {
  readonly accountId: string;
  readonly people: Readonly<Record<Role, Member>>;
}

/** Routes that a browser can reach. A HEAD is its GET. */
export function routesOf({ scopedRoutes }: PortalApp): readonly ScopedRoute[] {
  return scopedRoutes.filter(({ method }) => method !== 'HEAD');
}

export function filled(url: string, valueFor: (name: string) => string): string {
  return url.replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(valueFor(name)));
}

const SALES = {
  priceList: 'credit',
  paymentSecret: undefined,
  paymentInstructions: undefined,
} as const;

/** By `openWorld`, or `useWorld` before the first test of a describe. */
export class World {
  test!: PortalApp;
  origin!: string;
  ours!: AccountWorld;
  theirs!: AccountWorld;
  #database!: DatabaseSync;

  async open(options: TestAppOptions = {}): Promise<void> {
    this.test = await openTestApp({ settings: { portal: { sales: SALES } }, ...options });
    const { stores, accountId, databaseFile } = this.test;
    const other = await stores.accounts.create('their account');
    assert.ok(other);
    await stores.ledger.grant(other.id, 500, 'test');
    this.origin = options.baseUrl ?? BASE_URL;
    this.ours = await populate(this.test, this.origin, accountId);
    this.theirs = await populate(this.test, this.origin, other.id);
    this.#database = new DatabaseSync(databaseFile, { readOnly: true });
  }

  stranger(): Person {
    return new Person(this.test.app, this.origin);
  }

  join(accountId: string, role: Role): Promise<Member> {
    return memberOf(this.test, this.origin, accountId, role);
  }

  rows(): Readonly<Record<string, readonly string[]>> {
    const tables = this.#database
      .prepare(`select name from sqlite_master where type = 'table' order by name`)
      .all() as { name: string }[];
    const kept = tables.filter(({ name }) => !NOTED_BY_READS.test(name));
    const dump = kept.map(({ name }) => {
      const rows = this.#database.prepare(`select * from "${name}"`).all();
      const rowTexts = rows
        .filter(row => !isReadied(row))
        .map(row => JSON.stringify(withoutSeen(row)));
      return [name, rowTexts.sort()];
    });
    return Object.fromEntries(dump);
  }

  row(table: string, value: string, column = 'id'): Readonly<Record<string, unknown>> {
    const sql = `select * from "${table}" where "${column}" = ?`;
    const rows = this.#database.prepare(sql).all(value);
    assert.equal(rows.length, 1, `${rows.length} rows`);
    return rows[0] ?? {};
  }

  async close(): Promise<void> {
    this.#database.close();
    await this.test.close();
  }
}

/** @param context the test that closes it; absent: the caller does */
export async function openWorld(
  options: TestAppOptions = {},
  context?: Pick<ExecutionContext, 'teardown'>,
): Promise<World> {
  const world = new World();
  await world.open(options);
  context?.teardown(() => world.close());
  return world;
}

/** A world while the tests run. @param then runs before the first test */
export function useWorld(
  test: Pick<SerialFn, 'before' | 'after'>,
  options: TestAppOptions = {},
  then?: () => Promise<void>,
): World {
  const world = new World();
  test.before(async () => {
    await world.open(options);
    await then?.();
  });
  test.after.always(() => world.close());
  return world;
}

/** The service writes these tables itself: leases and clocks. */
const NOTED_BY_READS = /^sqlite_|^kysely_|sweeps|rate_|throttle|replicas/;

/** The first visit of a playground makes this row, which nobody sees. */
function isReadied({ purpose, used }: Record<string, unknown>): boolean {
  return purpose === 'playground' || used === 0;
}

function withoutSeen(row: Record<string, unknown>): Record<string, unknown> {
  const { seen_at: _seen, last_used_at: _used, ...rest } = row;
  return rest;
}

async function populate(test: PortalApp, origin: string, accountId: string): Promise<AccountWorld> {
  const people = await Promise.all(
    ROLES.map(async role => [role, await memberOf(test, origin, accountId, role)] as const),
  );
  return { accountId, people: Object.fromEntries(people) as AccountWorld['people'] };
}

function memberOf(test: PortalApp, origin: string, accountId: string, role: Role): Promise<Member> {
  return signedIn(test, new Person(test.app, origin), newLink(accountId, { role }));
}

/** By the stores, since other tests sign in by the pages. */
export async function signedIn(
  { stores }: { readonly stores: Pick<Stores, 'links'> },
  person: Person,
  link: NewLink,
  agent = 'a browser',
): Promise<Member> {
  const secret = createSecret();
  assert.equal(await stores.links.create(link, OPERATOR), 'created');
  const session = newSession({ idHash: hashOfSecret(secret), agent });
  const used = await stores.links.use(linkUse(link, { session, passwordHash: null }));
  assert.ok(used.kind === 'signed-in');
  person.cookies.set('__Host-matting-session', secret);
  const { mail } = link;
  return Object.assign(person, { userId: used.userId, sessionId: session.id, mail, secret });
}
