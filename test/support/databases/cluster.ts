import mysql, { type Connection, type RowDataPacket } from 'mysql2/promise';
import { at } from '../at.ts';
import type { OrdinaryUser, ServerProcess } from './server-process.ts';

const JOIN_MS_MAX = 60_000;
const LOOK_MS = 100;

/** Has the service's rights, on the databases of tests. */
export const USER = 'matting';
export const PASSWORD = 'secret';
export const DATABASE = 'matting_test';
export const CREATE_USER: readonly string[] = [
  `create database ${DATABASE}`,
  `create user ${USER}@'%' identified by '${PASSWORD}'`,
  `grant all on \`matting\\_test%\`.* to ${USER}@'%'`,
];

export interface DatabaseCluster {
  readonly name: string;
  readonly members: readonly ClusterMember[];
  close(): Promise<void>;
}

export abstract class ClusterMember {
  readonly name: string;
  readonly port: number;
  readonly process: ServerProcess;
  readonly #socket: string;

  constructor(name: string, place: { port: number; socket: string; process: ServerProcess }) {
    this.name = name;
    this.port = place.port;
    this.process = place.process;
    this.#socket = place.socket;
  }

  get url(): string {
    return urlOfPort(this.port);
  }

  /** Starts it; resolves once it is a member. */
  abstract join(): Promise<void>;

  abstract takesPart(): Promise<boolean>;

  takesWrites(): Promise<boolean> {
    return this.takesPart();
  }

  kill(): Promise<void> {
    return this.process.kill();
  }

  stop(): Promise<void> {
    return this.process.stop();
  }

  /** Planned switch to this member as writer. Absent: no router follows one. */
  promote?(): Promise<void>;

  freeze(): void {
    this.process.freeze();
  }

  async ask(statement: string): Promise<readonly RowDataPacket[]> {
    const connection = await this.#connect();
    try {
      const [rows] = await connection.query<RowDataPacket[]>(statement);
      return rows;
    } finally {
      connection.destroy();
    }
  }

  async askOne(statement: string): Promise<string> {
    return String(Object.values(at(await this.ask(statement), 0)).at(-1));
  }

  async untilTakesPart(): Promise<void> {
    await this.until(() => this.takesPart(), 'takes part');
  }

  protected async until(
    holds: () => Promise<boolean>,
    what: string,
    msMax = JOIN_MS_MAX,
  ): Promise<void> {
    const deadlineMs = performance.now() + msMax;
    let last: unknown;
    const now = () =>
      holds().catch(error => {
        last = error;
        return false;
      });
    while (!(await now())) {
      if (!this.process.running || performance.now() > deadlineMs) {
        const why = `${this.name} never ${what}: ${last ?? 'it says no'}`;
        throw new Error(`${why}\n${this.process.logTail()}`);
      }
      await new Promise(resolve => setTimeout(resolve, LOOK_MS));
    }
  }

  #connect(): Promise<Connection> {
    return mysql.createConnection({
      socketPath: this.#socket,
      user: 'root',
      connectTimeout: JOIN_MS_MAX,
    });
  }
}

export function urlOfPort(port: number): string {
  return `mysql://${USER}:${PASSWORD}@127.0.0.1:${port}/${DATABASE}`;
}

/** For servers that refuse root; undefined: this process's user is ordinary. */
export function ordinaryUser(): OrdinaryUser | undefined {
  // Debian's nobody owns nothing else and exists in every system, chroots included.
  return process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : undefined;
}
