/** Two MariaDB servers behind one address, for fail-over tests. */
import { at } from '@matting/test-support/at.ts';
import { SILENT_LOG, type TestDatabase } from '@matting/test-support/database.ts';
import { findMariadb, MariadbServer } from '@matting/test-support/mariadb-server.ts';
import { sql } from 'kysely';
import { openDatabase } from '../connect.ts';
import type { Database, Schema } from '../database.ts';
import { type MigrationSeries, migrate } from '../migrate.ts';
import { DatabaseProxy } from './database-proxy.ts';

const NAME = 'matting_pair';

/** A server provided for the tests cannot be demoted. */
export const pairSkipReason: string | false = findMariadb()
  ? false
  : 'no MariaDB here: install mariadb-server';

class Member {
  readonly #server: MariadbServer;
  /** As root, whom read_only does not stop. */
  readonly database: Database;

  private constructor(server: MariadbServer, database: Database) {
    this.#server = server;
    this.database = database;
  }

  static async create(): Promise<Member> {
    const server = await MariadbServer.create();
    const socket = `socket=${encodeURIComponent(server.socket)}`;
    const root = await openDatabase(`mysql://root@localhost/mysql?${socket}`, { log: SILENT_LOG });
    for (const statement of [
      `create database ${NAME}`,
      'create user matting@localhost',
      `grant all on ${NAME}.* to matting@localhost`,
    ]) {
      await sql.raw(statement).execute(root.kysely);
    }
    await root.close();
    const database = await openDatabase(`mysql://root@localhost/${NAME}?${socket}`, {
      log: SILENT_LOG,
    });
    return new Member(server, database);
  }

  get url(): string {
    const socket = `socket=${encodeURIComponent(this.#server.socket)}`;
    return `mysql://matting@localhost/${NAME}?${socket}`;
  }

  async set(assignments: string): Promise<void> {
    await sql
      .raw(`set global ${assignments.replaceAll(', ', ', global ')}`)
      .execute(this.database.kysely);
  }

  async connections(): Promise<number> {
    const { rows } = await sql<{ count: number }>`
      select count(*) as count from information_schema.processlist where user = 'matting'
    `.execute(this.database.kysely);
    return Number(at(rows, 0).count);
  }

  async close(): Promise<void> {
    await this.database.close();
    await this.#server.kill();
  }
}

export class DatabasePair {
  readonly first: Member;
  readonly second: Member;
  readonly proxy: DatabaseProxy;

  private constructor(first: Member, second: Member, proxy: DatabaseProxy) {
    this.first = first;
    this.second = second;
    this.proxy = proxy;
  }

  /** Both have the tables; the address leads to the first. */
  static async create(series: readonly MigrationSeries[]): Promise<DatabasePair> {
    const [first, second] = await Promise.all([Member.create(), Member.create()]);
    await Promise.all([first, second].map(member => migrate(member.database, series)));
    const proxy = new DatabaseProxy(first.url);
    await proxy.open();
    return new DatabasePair(first, second, proxy);
  }

  get url(): string {
    return this.proxy.url;
  }

  asTestDatabase(): TestDatabase {
    const handles: Database[] = [];
    return {
      dialect: 'mysql',
      url: this.url,
      open: async (log = SILENT_LOG) => {
        const database = await openDatabase(this.url, { log });
        handles.push(database);
        return database;
      },
      close: async () => {
        await Promise.all(handles.map(handle => handle.close()));
        await this.close();
      },
    };
  }

  async demoteFirst(assignment = 'read_only = 1'): Promise<void> {
    await this.first.set(assignment);
    await copyTables(this.first.database, this.second.database);
  }

  promoteSecond(): void {
    this.proxy.leadTo(this.second.url);
  }

  /** Makes the first the primary again, with the second's data. */
  async switchBack(): Promise<void> {
    await this.first.set('read_only = 0, tx_read_only = 0');
    await copyTables(this.second.database, this.first.database);
    this.proxy.leadTo(this.first.url);
  }

  async close(): Promise<void> {
    await this.proxy.close();
    await Promise.all([this.first.close(), this.second.close()]);
  }
}

async function copyTables(from: Database, to: Database): Promise<void> {
  const tables = await from.kysely.introspection.getTables();
  const names = tables.map(({ name }) => name).filter(name => !name.startsWith('kysely_'));
  for (const name of names as (keyof Schema)[]) {
    const rows = await from.kysely.selectFrom(name).selectAll().execute();
    await to.kysely.deleteFrom(name).execute();
    for (const row of rows) await to.kysely.insertInto(name).values(row).execute();
  }
}
