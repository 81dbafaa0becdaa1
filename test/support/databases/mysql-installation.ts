/**
 * Finds MySQL's server: `MATTING_TEST_MYSQLD=path`, or a system (by mmdebstrap) in
 * `MATTING_TEST_MYSQL_ROOT=directory`, entered by chroot as root.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { chown, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findProgram } from '../foreign-program.ts';
import { ordinaryUser } from './cluster.ts';
import type { ServerCommand } from './server-process.ts';

const PROGRAM_IN_ROOT = '/usr/sbin/mysqld';

interface Installation {
  readonly program: string;
  readonly root?: string;
}

/** Undefined: none, or MariaDB under that name. */
function findInstallation(): Installation | undefined {
  const { MATTING_TEST_MYSQLD: given, MATTING_TEST_MYSQL_ROOT: root } = process.env;
  if (root) return { program: PROGRAM_IN_ROOT, root };
  const program = given || findProgram('mysqld');
  if (program === undefined) return undefined;
  const { stdout } = spawnSync(program, ['--no-defaults', '--version'], { encoding: 'utf8' });
  return /mariadb/i.test(stdout ?? 'mariadb') ? undefined : { program };
}

export function mysqlSkipReason(): string | false {
  const found = findInstallation();
  const how = 'set MATTING_TEST_MYSQLD=path, or MATTING_TEST_MYSQL_ROOT=directory';
  if (found === undefined) return `no MySQL server here (MariaDB's is none): ${how}`;
  if (findProgram('setpriv') === undefined) return 'no setpriv here: install util-linux';
  if (found.root === undefined) return false;
  if (process.getuid?.() !== 0) return 'MATTING_TEST_MYSQL_ROOT takes root: chroot does';
  const whole = [PROGRAM_IN_ROOT, '/usr/bin/setpriv'].every(file =>
    existsSync(path.join(found.root ?? '', file)),
  );
  return whole ? false : `no ${PROGRAM_IN_ROOT} with setpriv in MATTING_TEST_MYSQL_ROOT`;
}

/** A directory that the server may write to, by its paths outside and inside the chroot. */
export class MysqlHome {
  readonly outside: string;
  readonly #installation: Installation;

  private constructor(outside: string, installation: Installation) {
    this.outside = outside;
    this.#installation = installation;
  }

  static async create(): Promise<MysqlHome> {
    const reason = mysqlSkipReason();
    const installation = findInstallation();
    if (reason !== false || installation === undefined) throw new Error(String(reason));
    const { root } = installation;
    const parent = root === undefined ? tmpdir() : path.join(path.resolve(root), 'tmp');
    const home = new MysqlHome(await mkdtemp(path.join(parent, 'matting-mysql-')), installation);
    process.once('exit', () => home.remove());
    await home.own('');
    return home;
  }

  inside(...names: readonly string[]): string {
    const file = path.join(this.outside, ...names);
    const { root } = this.#installation;
    return root === undefined ? file : file.slice(path.resolve(root).length);
  }

  command(args: readonly string[]): ServerCommand {
    const { program, root } = this.#installation;
    return { program, args, root, user: ordinaryUser() };
  }

  async own(...names: readonly string[]): Promise<void> {
    const user = ordinaryUser();
    const file = path.join(this.outside, ...names);
    if (user !== undefined) await chown(file, user.uid, user.gid);
  }

  remove(): void {
    rmSync(this.outside, { recursive: true, force: true, maxRetries: 5 });
  }
}
