/** Any member takes writes, which are certified at commit. */
import { existsSync, rmSync } from 'node:fs';
import { chown, mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findFreePorts } from '@matting/program/ports/free-ports.ts';
import { at } from '../at.ts';
import { findProgram } from '../foreign-program.ts';
import { findMariadb, WITHOUT_FSYNC } from '../mariadb-server.ts';
import { ClusterMember, CREATE_USER, type DatabaseCluster, ordinaryUser } from './cluster.ts';
import { runToEnd, ServerProcess } from './server-process.ts';

const PROVIDERS = ['/usr/lib/galera/libgalera_smm.so', '/usr/lib64/galera/libgalera_smm.so'];
/** SQL, group communication, incremental and full state transfer. */
const PORTS_OF_MEMBER = 4;

export function galeraSkipReason(): string | false {
  if (findMariadb() === undefined) return 'no MariaDB here: install mariadb-server';
  if (findProvider() === undefined) return 'no Galera here: install galera-4';
  // Copies the first member's files to one that joins.
  if (findProgram('rsync') === undefined) return 'no rsync here: install rsync';
  return findProgram('setpriv') ? false : 'no setpriv here: install util-linux';
}

function findProvider(): string | undefined {
  return PROVIDERS.find(file => existsSync(file));
}

class GaleraMember extends ClusterMember {
  readonly #others: string;

  constructor(
    name: string,
    others: string,
    place: { port: number; socket: string; process: ServerProcess },
  ) {
    super(name, place);
    this.#others = others;
  }

  bootstrap(): Promise<void> {
    return this.#start(['--wsrep-new-cluster', '--wsrep-cluster-address=gcomm://']);
  }

  join(): Promise<void> {
    return this.#start([`--wsrep-cluster-address=gcomm://${this.#others}`]);
  }

  async takesPart(): Promise<boolean> {
    return (
      (await this.askOne("show status like 'wsrep_ready'")) === 'ON' &&
      (await this.askOne("show status like 'wsrep_local_state_comment'")) === 'Synced'
    );
  }

  async #start(args: readonly string[]): Promise<void> {
    await this.process.start('ready for connections', args);
    await this.untilTakesPart();
  }
}

export class GaleraCluster implements DatabaseCluster {
  readonly name = 'Galera';
  readonly members: readonly ClusterMember[];
  readonly #directory: string;

  private constructor(members: readonly ClusterMember[], directory: string) {
    this.members = members;
    this.#directory = directory;
  }

  static async create(size = 3): Promise<GaleraCluster> {
    const reason = galeraSkipReason();
    if (reason !== false) throw new Error(reason);
    const directory = await mkdtemp(path.join(tmpdir(), 'matting-galera-'));
    process.once('exit', () => removeAll(directory));
    const user = ordinaryUser();
    if (user !== undefined) await chown(directory, user.uid, user.gid);
    const ports: number[] = await findFreePorts(size * PORTS_OF_MEMBER);
    const groups = Array.from({ length: size }, () => ports.splice(0, PORTS_OF_MEMBER));
    const addresses = groups.map(([, group]) => `127.0.0.1:${group}`).join();
    const members = await Promise.all(
      groups.map((group, index) => createMember(directory, index, { ports: group, addresses })),
    );
    const first = at(members, 0);
    const cluster = new GaleraCluster(members, directory);
    try {
      await first.bootstrap();
      for (const statement of CREATE_USER) await first.ask(statement);
      // The first member gives its files to one at a time.
      for (const member of members.slice(1)) {
        await member.join();
        await first.untilTakesPart();
      }
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  async close(): Promise<void> {
    await Promise.all(this.members.map(member => member.kill()));
    removeAll(this.#directory);
  }
}

function removeAll(directory: string): void {
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

interface MemberPlace {
  readonly ports: readonly number[];
  readonly addresses: string;
}

async function createMember(
  directory: string,
  index: number,
  { ports, addresses }: MemberPlace,
): Promise<GaleraMember> {
  const programs = findMariadb();
  if (programs === undefined) throw new Error('mariadbd is not installed');
  const user = ordinaryUser();
  const home = path.join(directory, String(index));
  for (const made of [home, path.join(home, 'data')]) {
    await mkdir(made);
    if (user !== undefined) await chown(made, user.uid, user.gid);
  }
  const data = [
    '--no-defaults',
    `--datadir=${path.join(home, 'data')}`,
    `--tmpdir=${home}`,
    '--innodb-buffer-pool-size=64M',
    '--innodb-log-file-size=32M',
    ...WITHOUT_FSYNC,
  ];
  if (index === 0) {
    const args = [...data, '--auth-root-authentication-method=normal', '--skip-test-db'];
    await runToEnd({ program: programs.installer, args, user });
  }
  const port = at(ports, 0);
  const socket = path.join(home, 's');
  const args = [
    ...data,
    `--port=${port}`,
    '--bind-address=127.0.0.1',
    `--socket=${socket}`,
    '--max-connections=300',
    '--connect-timeout=600',
    ...replicationOptions(index, ports),
  ];
  const name = `galera-${index}`;
  const process = new ServerProcess(name, { program: programs.server, args, user });
  return new GaleraMember(name, addresses, { port, socket, process });
}

/** Ports differ only because all members share one machine. */
function replicationOptions(index: number, ports: readonly number[]): string[] {
  const [group, incremental, full] = [at(ports, 1), at(ports, 2), at(ports, 3)];
  const provider = [
    'gcache.size=32M',
    `base_port=${group}`,
    `gmcast.listen_addr=tcp://127.0.0.1:${group}`,
    `ist.recv_addr=127.0.0.1:${incremental}`,
  ];
  return [
    '--binlog-format=ROW',
    '--default-storage-engine=InnoDB',
    '--innodb-autoinc-lock-mode=2',
    '--wsrep-on=ON',
    `--wsrep-provider=${findProvider()}`,
    '--wsrep-cluster-name=matting-test',
    `--wsrep-node-name=member-${index}`,
    `--wsrep-node-address=127.0.0.1:${group}`,
    `--wsrep-provider-options=${provider.join(';')}`,
    '--wsrep-sst-method=rsync',
    `--wsrep-sst-receive-address=127.0.0.1:${full}`,
  ];
}
