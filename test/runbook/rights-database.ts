/** A private MariaDB whose users have exactly the rights of docs/security.md. */
import assert from 'node:assert/strict';
import mysql, { type RowDataPacket } from 'mysql2/promise';
import { MariadbServer } from '../support/mariadb-server.ts';
import { codeOf, readPage } from './runbook-page.ts';

const PASSWORD = 'A-PASSWORD';

export function documentedRights(): readonly string[] {
  const section = readPage('docs/security.md').split('\n### The database user\n')[1] ?? '';
  const [own = ''] = section.split(/\n#{2,3} /);
  const statements = codeOf(own).filter(line => /^(?:CREATE (?:DATABASE|USER)|GRANT) /.test(line));
  assert.ok(statements.length >= 5, 'docs/security.md has no statements for the database user');
  return statements;
}

/** The server has only a socket, so users are local. */
const hereOf = (statement: string): string =>
  statement.replace(/'10\.[\d.%/]+'/, "'localhost'").replace(/;$/, '');

export class RightsDatabase {
  readonly server: MariadbServer;

  private constructor(server: MariadbServer) {
    this.server = server;
  }

  static async create(): Promise<RightsDatabase> {
    const database = new RightsDatabase(await MariadbServer.create());
    for (const statement of documentedRights()) {
      await database.ask(hereOf(statement));
    }
    return database;
  }

  get url(): string {
    return this.#urlOf('matting');
  }

  get migratorUrl(): string {
    return this.#urlOf('matting_migrator');
  }

  async addUser(name: string): Promise<string> {
    for (const statement of documentedRights()) {
      if (!/'matting'@/.test(statement)) continue;
      await this.ask(hereOf(statement).replace("'matting'@", `'${name}'@`));
    }
    return this.#urlOf(name);
  }

  #urlOf(user: string): string {
    const socket = encodeURIComponent(this.server.socket);
    return `mysql://${user}:${PASSWORD}@localhost/matting?socket=${socket}`;
  }

  async ask(statement: string): Promise<readonly RowDataPacket[]> {
    const connection = await mysql.createConnection({
      socketPath: this.server.socket,
      user: 'root',
    });
    try {
      const [rows] = await connection.query<RowDataPacket[]>(statement);
      return rows;
    } finally {
      connection.destroy();
    }
  }

  close(): Promise<void> {
    return this.server.kill();
  }
}
