import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { findFreePorts } from '@matting/program/ports/free-ports.ts';
import { at } from '../at.ts';
import { ClusterMember, CREATE_USER, type DatabaseCluster, USER } from './cluster.ts';
import { MysqlHome, mysqlSkipReason } from './mysql-installation.ts';
import { runToEnd, ServerProcess } from './server-process.ts';

export type GroupMode = 'single-primary' | 'multi-primary';

export const groupSkipReason = mysqlSkipReason;

/** The statement itself gives up after a minute. */
const EXPELLED_MS_MAX = 180_000;
const RECOVERY_USER = 'recovery';
const RECOVERY_PASSWORD = 'recovery-secret';
/** Run before there is a binary log. */
const FIRST_STATEMENTS = [
  `create user ${RECOVERY_USER}@'%' identified by '${RECOVERY_PASSWORD}'`,
  `grant replication slave, backup_admin, connection_admin, group_replication_stream
    on *.* to ${RECOVERY_USER}@'%'`,
  ...CREATE_USER,
  `grant select on performance_schema.replication_group_members to ${USER}@'%'`,
].map(statement => `${statement.replaceAll(/\s+/g, ' ')};\n`);

export class GroupMember extends ClusterMember {
  async bootstrap(): Promise<void> {
    await this.#open();
    await this.ask('set global group_replication_bootstrap_group = ON');
    await this.ask('start group_replication');
    await this.ask('set global group_replication_bootstrap_group = OFF');
    await this.untilTakesPart();
  }

  async join(): Promise<void> {
    await this.#open();
    // A killed member is refused until the others have expelled it, which a loaded machine delays.
    const starts = () => this.ask('start group_replication').then(() => true);
    await this.until(starts, 'joins its group', EXPELLED_MS_MAX);
    await this.untilTakesPart();
  }

  async takesPart(): Promise<boolean> {
    return (await this.#ownRow('member_state')) === 'ONLINE';
  }

  override async takesWrites(): Promise<boolean> {
    return (await this.takesPart()) && (await this.#ownRow('member_role')) === 'PRIMARY';
  }

  override async promote(): Promise<void> {
    const id = await this.askOne('select @@server_uuid');
    // The others may expel a slow member meanwhile. It joins again by itself.
    const asks = () =>
      this.ask(`select group_replication_set_as_primary('${id}')`).then(() => this.takesWrites());
    await this.until(asks, 'becomes the primary', EXPELLED_MS_MAX);
  }

  async #open(): Promise<void> {
    await this.process.start('ready for connections');
    // Not as arguments: a member keeps user and password with its data.
    await this.ask(`change replication source to source_user = '${RECOVERY_USER}',
      source_password = '${RECOVERY_PASSWORD}' for channel 'group_replication_recovery'`);
  }

  async #ownRow(column: string): Promise<string | undefined> {
    const rows = await this.ask(`select ${column} as value
      from performance_schema.replication_group_members where member_id = @@server_uuid`);
    return rows[0]?.value;
  }
}

export class ReplicationGroup implements DatabaseCluster {
  readonly name: string;
  readonly members: readonly GroupMember[];
  readonly #home: MysqlHome;

  private constructor(mode: GroupMode, members: readonly GroupMember[], home: MysqlHome) {
    this.name = `Group Replication (${mode})`;
    this.members = members;
    this.#home = home;
  }

  /** Resolves once all are members; the first is the primary. */
  static async create(mode: GroupMode, size = 3): Promise<ReplicationGroup> {
    const home = await MysqlHome.create();
    const ports: number[] = await findFreePorts(2 * size);
    const sql = ports.splice(0, size);
    const groupName = randomUUID();
    const members = sql.map((_, index) =>
      createMember(home, { mode, groupName, index, sql, group: ports }),
    );
    const group = new ReplicationGroup(mode, members, home);
    try {
      await makeData(home, size);
      await at(members, 0).bootstrap();
      await Promise.all(members.slice(1).map(member => member.join()));
    } catch (error) {
      await group.close();
      throw error;
    }
    return group;
  }

  async close(): Promise<void> {
    await Promise.all(this.members.map(member => member.kill()));
    this.#home.remove();
  }
}

/** Made once and copied: it costs seconds of processor time. */
async function makeData(home: MysqlHome, size: number): Promise<void> {
  await writeFile(path.join(home.outside, 'first.sql'), FIRST_STATEMENTS);
  const args = [
    '--no-defaults',
    '--initialize-insecure',
    `--datadir=${home.inside('first')}`,
    `--init-file=${home.inside('first.sql')}`,
  ];
  await runToEnd(home.command(args));
  const first = path.join(home.outside, 'first');
  // The server's UUID, which must differ.
  await rm(path.join(first, 'auto.cnf'), { force: true });
  for (let index = 0; index < size; index += 1) {
    const member = path.join(home.outside, String(index));
    await mkdir(member);
    await home.own(String(index));
    await runToEnd({ program: 'cp', args: ['-a', first, path.join(member, 'data')] });
  }
  await rm(first, { recursive: true });
}

interface MemberPlace {
  readonly mode: GroupMode;
  readonly groupName: string;
  readonly index: number;
  readonly sql: readonly number[];
  readonly group: readonly number[];
}

function createMember(home: MysqlHome, place: MemberPlace): GroupMember {
  const { index } = place;
  const port = at(place.sql, index);
  const args = [
    '--no-defaults',
    `--datadir=${home.inside(String(index), 'data')}`,
    `--tmpdir=${home.inside(String(index))}`,
    `--socket=${home.inside(String(index), 's')}`,
    `--pid-file=${home.inside(String(index), 'pid')}`,
    '--log-error-verbosity=2',
    '--mysqlx=OFF',
    '--secure-file-priv=',
    `--port=${port}`,
    '--bind-address=127.0.0.1',
    '--max-connections=300',
    '--connect-timeout=600',
    '--innodb-buffer-pool-size=64M',
    // Tests crash the server, never the machine.
    '--innodb-flush-log-at-trx-commit=2',
    '--innodb-doublewrite=OFF',
    '--sync-binlog=0',
    ...replicationOptions(place),
  ];
  const name = `group-${index}`;
  const process = new ServerProcess(name, home.command(args));
  return new GroupMember(name, {
    port,
    socket: path.join(home.outside, String(index), 's'),
    process,
  });
}

function replicationOptions({ mode, groupName, index, sql, group }: MemberPlace): string[] {
  const single = mode === 'single-primary';
  return [
    `--server-id=${index + 1}`,
    '--gtid-mode=ON',
    '--enforce-gtid-consistency=ON',
    '--report-host=127.0.0.1',
    `--report-port=${at(sql, index)}`,
    '--plugin-load-add=group_replication.so',
    '--plugin-load-add=mysql_clone.so',
    // "loose": the plugin is loaded after the options are read.
    `--loose-group-replication-group-name=${groupName}`,
    '--loose-group-replication-start-on-boot=OFF',
    // As a start on boot does: no write before it has joined. The group lifts it of its primary.
    '--super-read-only=ON',
    `--loose-group-replication-local-address=127.0.0.1:${at(group, index)}`,
    `--loose-group-replication-group-seeds=${group.map(port => `127.0.0.1:${port}`).join()}`,
    `--loose-group-replication-single-primary-mode=${single ? 'ON' : 'OFF'}`,
    `--loose-group-replication-enforce-update-everywhere-checks=${single ? 'OFF' : 'ON'}`,
    '--loose-group-replication-recovery-get-public-key=ON',
  ];
}
