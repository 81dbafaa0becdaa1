/** A one-machine cluster that runs pods, in main.ts's network namespace. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { findProgram, spawnBound } from '../support/foreign-program.ts';
import { until } from '../support/processes.ts';
import { ApiServer, requireProgram } from './api-server.ts';

/** For pushed images (outside.ts). */
export const REGISTRY = '10.244.0.1:5000';
/** The pods' gateway: the machine and the name server. */
export const ADDRESS = '10.244.0.1';
const MACHINE = 'machine';
const READY_MS_MAX = 300_000;
/** Podman builds it from catatonit for its first pod. */
const PAUSE_IMAGE = 'localhost/podman-pause:4.3.1-0';
const PROGRAMS = [
  ...['helm', 'kubectl', 'etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'],
  ...['kubelet', 'kube-proxy', 'coredns', 'containerd', 'ctr', 'runc', 'podman', 'iptables', 'ip'],
  ...['unshare', 'mariadbd', 'versitygw', 'prometheus', 'docker-registry', 'make'],
];
const IMAGES = ['control-plane:dev', 'node:dev', 'node:dev-bare'];

export const imageName = (image: string) => `localhost/matting-${image}`;

export function missingForCluster(): string[] {
  const missing = PROGRAMS.filter(name => findProgram(name) === undefined);
  if (process.getuid?.() !== 0) missing.push('root');
  if (missing.includes('podman')) return missing;
  return [...missing, ...IMAGES.filter(image => !hasImage(imageName(image))).map(imageName)];
}

function hasImage(name: string): boolean {
  try {
    execFileSync('podman', ['image', 'exists', name], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

export class Cluster {
  readonly api: ApiServer;
  readonly directory: string;

  private constructor(api: ApiServer) {
    this.api = api;
    this.directory = api.directory;
  }

  /** @param images preloaded */
  static async start(images: readonly string[] = IMAGES.map(imageName)): Promise<Cluster> {
    openNetwork();
    // Its mounts end with the namespace, so main.ts removes it.
    const directory = mkdtempSync(path.join(tmpdir(), 'cluster-'));
    const cluster = new Cluster(await ApiServer.start({ address: ADDRESS, directory }));
    await cluster.#startContainerd();
    await cluster.#importImages(images);
    await cluster.#startControllers();
    await cluster.#startKubelet();
    await cluster.#startNetwork();
    await cluster.waitFor('the machine is ready', ['get', 'nodes'], / Ready /);
    return cluster;
  }

  async waitFor(
    what: string,
    args: readonly string[],
    wanted: RegExp,
    timeoutMs = READY_MS_MAX,
  ): Promise<void> {
    let said = '';
    await until(
      async () => {
        said = await this.api.kubectl(...args).catch((error: Error) => error.message);
        return wanted.test(said);
      },
      { timeoutMs, what, detail: () => said },
    );
  }

  file(name: string, text: string): string {
    const file = path.join(this.directory, name);
    writeFileSync(file, text);
    return file;
  }

  /** The PID namespace ends what it started. */
  async close(): Promise<void> {
    await this.api.close();
  }

  async #startContainerd(): Promise<void> {
    const network = path.join(this.directory, 'cni');
    mkdirSync(network);
    writeFileSync(path.join(network, '10-bridge.conflist'), JSON.stringify(BRIDGE));
    const config = this.file('containerd.toml', containerdConfig(this.directory));
    await this.api.spawn('containerd', 'successfully booted', ['--config', config]);
  }

  async #importImages(images: readonly string[]): Promise<void> {
    if (!hasImage(PAUSE_IMAGE)) {
      execFileSync('podman', ['pod', 'create', '--name', 'matting-test-pause']);
      execFileSync('podman', ['pod', 'rm', 'matting-test-pause']);
    }
    const names = [...images, PAUSE_IMAGE];
    const save = spawn('podman', ['save', '--quiet', '--multi-image-archive', ...names], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const socket = path.join(this.directory, 'containerd.sock');
    const load = spawn(
      'ctr',
      ['--address', socket, '--namespace', 'k8s.io', 'images', 'import', '-'],
      {
        stdio: ['pipe', 'ignore', 'inherit'],
      },
    );
    const loaded = new Promise<number | null>(resolve => load.once('exit', resolve));
    await pipeline(save.stdout, load.stdin);
    if ((await loaded) !== 0) throw new Error('the images were not imported');
  }

  async #startControllers(): Promise<void> {
    const { kubeconfig } = this.api;
    const common = [
      ...[`--kubeconfig=${kubeconfig}`, `--authentication-kubeconfig=${kubeconfig}`],
      ...[`--authorization-kubeconfig=${kubeconfig}`, '--leader-elect=false'],
      '--bind-address=127.0.0.1',
    ];
    await this.api.spawn('kube-controller-manager', 'Serving securely', [
      ...common,
      `--service-account-private-key-file=${path.join(this.directory, 'accounts.key')}`,
      `--root-ca-file=${path.join(this.directory, 'authority.crt')}`,
      '--horizontal-pod-autoscaler-sync-period=5s',
    ]);
    await this.api.spawn('kube-scheduler', 'Serving securely', common);
    // The kubelet authorises the API server, for logs and exec.
    await this.api.kubectl(
      ...['create', 'clusterrolebinding', 'api-server', '--clusterrole=cluster-admin'],
      '--user=kube-apiserver',
    );
  }

  async #startKubelet(): Promise<void> {
    const own = this.api.issue('kubelet', [ADDRESS, MACHINE]);
    const config = this.file('kubelet.json', JSON.stringify(kubeletConfig(this.directory, own)));
    await this.api.spawn('kubelet', 'Starting to listen', [
      ...[`--config=${config}`, `--kubeconfig=${this.api.kubeconfig}`],
      ...[`--hostname-override=${MACHINE}`, `--node-ip=${ADDRESS}`],
      ...[`--root-dir=${path.join(this.directory, 'kubelet')}`, `--cert-dir=${this.directory}`],
    ]);
  }

  async #startNetwork(): Promise<void> {
    await this.api.spawn('kube-proxy', 'Caches are synced', [
      ...[`--kubeconfig=${this.api.kubeconfig}`, `--hostname-override=${MACHINE}`],
      ...['--proxy-mode=iptables', '--masquerade-all', '--conntrack-max-per-core=0'],
      ...[`--bind-address=${ADDRESS}`, '--metrics-bind-address=127.0.0.1:10249'],
      '--healthz-bind-address=127.0.0.1:10256',
    ]);
    const zones = `.:53 {\n  bind ${ADDRESS}\n  errors\n  kubernetes cluster.local {\n    kubeconfig ${this.api.kubeconfig}\n  }\n}\n`;
    const child = spawnBound(requireProgram('coredns'), ['-conf', this.file('Corefile', zones)]);
    child.stderr?.resume();
    // So that the test resolves Services as pods do.
    const names = `nameserver ${ADDRESS}\nsearch svc.cluster.local cluster.local\noptions ndots:5\n`;
    execFileSync('mount', ['--bind', this.file('resolv.conf', names), '/etc/resolv.conf']);
  }
}

/** A bridge whose address is this machine's. */
function openNetwork(): void {
  const ip = (...args: readonly string[]) => execFileSync('ip', args);
  ip('link', 'set', 'lo', 'up');
  ip('link', 'add', 'cni0', 'type', 'bridge');
  ip('addr', 'add', `${ADDRESS}/24`, 'dev', 'cni0');
  ip('link', 'set', 'cni0', 'up');
  // Leads nowhere, but Service addresses are translated only if a route exists.
  ip('route', 'add', 'default', 'dev', 'cni0');
}

const BRIDGE = {
  cniVersion: '0.4.0',
  name: 'pods',
  plugins: [
    {
      type: 'bridge',
      bridge: 'cni0',
      isGateway: true,
      hairpinMode: true,
      ipam: {
        type: 'host-local',
        ranges: [[{ subnet: '10.244.0.0/24' }]],
        routes: [{ dst: '0.0.0.0/0' }],
      },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
  ],
};

function containerdConfig(directory: string): string {
  return `version = 2
root = "${directory}/containerd-root"
state = "${directory}/containerd-state"
[grpc]
  address = "${directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."${REGISTRY}"]
    endpoint = ["http://${REGISTRY}"]
`;
}

function kubeletConfig(directory: string, own: { readonly cert: string; readonly key: string }) {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: `${directory}/authority.crt` },
    },
    authorization: { mode: 'Webhook' },
    tlsCertFile: own.cert,
    tlsPrivateKeyFile: own.key,
    cgroupDriver: 'cgroupfs',
    failCgroupV1: false,
    failSwapOn: false,
    containerRuntimeEndpoint: `unix://${directory}/containerd.sock`,
    clusterDNS: [ADDRESS],
    clusterDomain: 'cluster.local',
    resolvConf: '',
    oomScoreAdj: 0,
    localStorageCapacityIsolation: false,
    evictionHard: { 'memory.available': '100Mi' },
  };
}
