/** With etcd; cluster.ts adds what runs pods. */
import { execFile, execFileSync } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { TestAuthority } from '../support/certificates.ts';
import { ServerProcess } from '../support/databases/server-process.ts';
import { findProgram } from '../support/foreign-program.ts';
import { until } from '../support/processes.ts';

const run = promisify(execFile);
const READY_MS_MAX = 120_000;
const COMMAND_MS_MAX = 900_000;
const OUTPUT_BYTES_MAX = 1 << 26;
const SERVICE_NETWORK = '10.96.0.0/24';

export interface ApiServerOptions {
  /** In addition to loopback, for pods and their machine. */
  readonly address?: string;
  /** The caller removes it. Default: temporary. */
  readonly directory?: string;
}

export function requireProgram(name: string): string {
  const program = findProgram(name);
  if (program === undefined) throw new Error(`${name} is not here`);
  return program;
}

/** Files in `*-crds` next to the programs. */
export function customResources(): string[] {
  const beside = path.join(path.dirname(requireProgram('kube-apiserver')), '..');
  return globSync('*-crds/*.yaml', { cwd: beside }).map(name => path.join(beside, name));
}

export class ApiServer {
  readonly directory: string;
  readonly authority = new TestAuthority('kubernetes');
  readonly kubeconfig: string;
  readonly address: string;
  readonly #processes: ServerProcess[] = [];
  readonly #port: number;
  readonly #token = randomBytes(16).toString('hex');
  readonly #temporary: boolean;

  private constructor({ address = '127.0.0.1', directory }: ApiServerOptions, port: number) {
    this.address = address;
    this.#port = port;
    this.#temporary = directory === undefined;
    this.directory = directory ?? mkdtempSync(path.join(tmpdir(), 'matting-kubernetes-'));
    this.kubeconfig = this.#write('kubeconfig', this.#kubeconfigText());
    process.once('exit', () => this.#removeDirectory());
  }

  static async start(options: ApiServerOptions = {}): Promise<ApiServer> {
    const [port, clients, peers] = await findFreePorts(3);
    const server = new ApiServer(options, port);
    const etcd = `http://127.0.0.1:${clients}`;
    const peer = `http://127.0.0.1:${peers}`;
    await server.spawn('etcd', 'ready to serve client requests', [
      ...['--data-dir', path.join(server.directory, 'etcd'), '--unsafe-no-fsync'],
      ...['--listen-client-urls', etcd, '--advertise-client-urls', etcd],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', `default=${peer}`],
    ]);
    await server.spawn('kube-apiserver', 'Serving securely', server.#options(etcd));
    await until(
      () =>
        server.kubectl('get', '--raw', '/readyz').then(
          () => true,
          () => false,
        ),
      { timeoutMs: READY_MS_MAX, what: 'the API server is ready' },
    );
    return server;
  }

  /** Ready once its log has `ready`; ends with this one. */
  async spawn(name: string, ready: string, args: readonly string[]): Promise<ServerProcess> {
    const started = new ServerProcess(name, { program: requireProgram(name), args });
    this.#processes.unshift(started);
    await started.start(ready);
    return started;
  }

  async kubectl(...args: readonly string[]): Promise<string> {
    const { stdout } = await run(requireProgram('kubectl'), args, this.#execOptions());
    return stdout;
  }

  async helm(...args: readonly string[]): Promise<string> {
    const { stdout } = await run(requireProgram('helm'), args, this.#execOptions());
    return stdout;
  }

  async shell(line: string, cwd: string): Promise<string> {
    const { stdout } = await run('sh', ['-c', line], { ...this.#execOptions(), cwd });
    return stdout;
  }

  apply(text: string, ...args: readonly string[]): string {
    const given = ['apply', '--server-side', '--validate=strict', ...args, '--filename', '-'];
    return execFileSync(requireProgram('kubectl'), given, {
      ...this.#execOptions(),
      input: text,
      encoding: 'utf8',
      stdio: 'pipe',
    });
  }

  issue(name: string, hosts: readonly string[]): { readonly cert: string; readonly key: string } {
    const { cert, key } = this.authority.issue(name, hosts);
    return { cert: this.#write(`${name}.crt`, cert), key: this.#write(`${name}.key`, key) };
  }

  async close(): Promise<void> {
    for (const each of this.#processes) await each.kill();
    this.#removeDirectory();
  }

  #removeDirectory(): void {
    if (this.#temporary) rmSync(this.directory, { recursive: true, force: true });
  }

  #write(name: string, text: string): string {
    const file = path.join(this.directory, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  }

  #execOptions() {
    const programs = path.dirname(requireProgram('kubectl'));
    return {
      env: {
        PATH: `${programs}:${path.dirname(process.execPath)}:${process.env.PATH}`,
        HOME: this.directory,
        KUBECONFIG: this.kubeconfig,
      },
      timeout: COMMAND_MS_MAX,
      maxBuffer: OUTPUT_BYTES_MAX,
    };
  }

  #kubeconfigText(): string {
    const authority = Buffer.from(this.authority.cert).toString('base64');
    return JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [
        {
          name: 'test',
          cluster: {
            server: `https://127.0.0.1:${this.#port}`,
            'certificate-authority-data': authority,
          },
        },
      ],
      users: [{ name: 'admin', user: { token: this.#token } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
      'current-context': 'test',
    });
  }

  #options(etcd: string): string[] {
    const own = this.issue('kube-apiserver', [
      '127.0.0.1',
      this.address,
      '10.96.0.1',
      'kubernetes.default.svc',
    ]);
    const front = this.issue('front-proxy', []);
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const signer = this.#write(
      'accounts.key',
      privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    );
    const signed = this.#write(
      'accounts.pub',
      publicKey.export({ type: 'spki', format: 'pem' }) as string,
    );
    const authority = this.#write('authority.crt', this.authority.cert);
    const admins = this.#write('tokens.csv', `${this.#token},admin,admin,"system:masters"\n`);
    return [
      ...[`--etcd-servers=${etcd}`, `--service-cluster-ip-range=${SERVICE_NETWORK}`],
      ...['--bind-address=0.0.0.0', `--secure-port=${this.#port}`],
      ...(this.address === '127.0.0.1' ? [] : [`--advertise-address=${this.address}`]),
      ...[`--tls-cert-file=${own.cert}`, `--tls-private-key-file=${own.key}`],
      ...[`--client-ca-file=${authority}`, `--token-auth-file=${admins}`],
      '--authorization-mode=Node,RBAC',
      '--service-account-issuer=https://kubernetes.default.svc',
      ...[`--service-account-key-file=${signed}`, `--service-account-signing-key-file=${signer}`],
      ...[`--kubelet-client-certificate=${own.cert}`, `--kubelet-client-key=${own.key}`],
      `--kubelet-certificate-authority=${authority}`,
      '--kubelet-preferred-address-types=InternalIP',
      ...[
        `--requestheader-client-ca-file=${authority}`,
        '--requestheader-allowed-names=front-proxy',
      ],
      '--requestheader-username-headers=X-Remote-User',
      '--requestheader-group-headers=X-Remote-Group',
      '--requestheader-extra-headers-prefix=X-Remote-Extra-',
      ...[`--proxy-client-cert-file=${front.cert}`, `--proxy-client-key-file=${front.key}`],
      '--enable-aggregator-routing=true',
    ];
  }
}
