/** The two programs of a stack as children: what each is given, and in which order they end. */
import path from 'node:path';
import { ROOT, type SupervisorConfig } from './config.ts';
import { type ProgramExit, SupervisedProgram } from './supervised-program.ts';

const CONTROL_PLANE_MAIN = path.join(ROOT, 'control-plane/main.ts');
const NODE_MAIN = path.join(ROOT, 'inference-node/main.ts');

export const LOOPBACK = '127.0.0.1';

export interface ProgramsOptions {
  readonly config: SupervisorConfig;
  /** Both programs get these. */
  readonly tokens: Readonly<Record<string, string>>;
  readonly logDir: string;
  /** Something the person at the terminal should know. */
  readonly say: (line: string) => void;
}

/** The two programs of a stack; each is started once. */
export class Programs {
  readonly #options: ProgramsOptions;
  #controlPlane: SupervisedProgram | undefined;
  #node: SupervisedProgram | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: ProgramsOptions) {
    this.#options = options;
  }

  /** Resolves when it could not start. */
  startControlPlane(): Promise<ProgramExit> {
    const { config, tokens, logDir, say } = this.#options;
    this.#controlPlane = new SupervisedProgram({
      name: 'control plane',
      main: CONTROL_PLANE_MAIN,
      env: { ...controlPlaneEnv(config), ...tokens },
      logFile: path.join(logDir, 'control-plane.log'),
      say,
    });
    return this.#controlPlane.firstExit;
  }

  /** Resolves when it could not start. */
  startNode(): Promise<ProgramExit> {
    const { config, tokens, logDir, say } = this.#options;
    this.#node = new SupervisedProgram({
      name: 'inference node',
      main: NODE_MAIN,
      env: { ...nodeEnv(config), ...tokens },
      logFile: path.join(logDir, 'inference-node.log'),
      say,
    });
    return this.#node.firstExit;
  }

  keepUp(): void {
    this.#controlPlane?.keepUp();
    this.#node?.keepUp();
  }

  /** The node first: what it admitted comes back while the control plane can still store it. */
  readonly stop = (): Promise<void> => {
    this.#stopping ??= this.#stopInOrder();
    return this.#stopping;
  };

  readonly hurry = async (): Promise<void> => {
    await Promise.all([this.#node?.hurry(), this.#controlPlane?.hurry()]);
  };

  async #stopInOrder(): Promise<void> {
    await this.#node?.stop();
    await this.#controlPlane?.stop();
  }
}

/**
 * For developers: notifications reach receivers on this machine. Not set if others can call, on
 * another address or by a name in front: others must not reach loopback.
 */
const OWN_CALLBACKS = {
  MATTING_ALLOW_HTTP_CALLBACKS: 'true',
  MATTING_ALLOWED_NETWORKS: '127.0.0.0/8,::1/128',
};

function isForThisMachine({ host, baseUrl }: SupervisorConfig): boolean {
  return baseUrl === undefined && /^(127\.|::1$|localhost$)/.test(host);
}

/** The environment of the control plane and of its CLI, which does not need the token. */
export function controlPlaneEnv(config: SupervisorConfig): Record<string, string> {
  return {
    ...(isForThisMachine(config) ? OWN_CALLBACKS : {}),
    // People who try the service read jobs by curl, a browser or a generated client.
    MATTING_READS_REQUIRE_IDEMPOTENCY_KEY: 'false',
    // The nodes and the scraper run on this machine; the operator may configure another address.
    MATTING_REGISTRY_HOST: LOOPBACK,
    MATTING_METRICS_HOST: LOOPBACK,
    ...config.env,
    MATTING_HOST: config.host,
    MATTING_PORT: String(config.ports.http),
    MATTING_REGISTRY_PORT: String(config.ports.registry),
    MATTING_METRICS_PORT: String(config.ports.metrics),
    MATTING_DATA_DIR: config.dataDir,
  };
}

function nodeEnv(config: SupervisorConfig): Record<string, string> {
  return {
    ...config.env,
    MATTING_HOST: LOOPBACK,
    MATTING_NODE_PORT: String(config.ports.node),
    MATTING_NODE_HTTP_PORT: String(config.ports.nodeHttp),
    MATTING_NODE_ADVERTISE_ADDRESS: `${LOOPBACK}:${config.ports.node}`,
    MATTING_REGISTRY_ADDRESS: `${LOOPBACK}:${config.ports.registry}`,
    MATTING_MODEL_DIR: config.modelDir,
    MATTING_ADDED_MODELS_DIR: config.addedModelsDir,
  };
}
