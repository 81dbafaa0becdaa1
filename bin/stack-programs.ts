/** The stack's programs as children: their environments and the order in which they end. */
import path from 'node:path';
import { type NodeSettings, ROOT, type SupervisorConfig } from './config.ts';
import { type ProgramExit, SupervisedProgram } from './supervised-program.ts';

const CONTROL_PLANE_MAIN = path.join(ROOT, 'control-plane/main.ts');
const NODE_MAIN = path.join(ROOT, 'inference-node/main.ts');

export const LOOPBACK = '127.0.0.1';

export interface ProgramsOptions {
  readonly config: SupervisorConfig;
  /** For all programs. */
  readonly tokens: Readonly<Record<string, string>>;
  readonly logDir: string;
  /** Shows a line to the user. */
  readonly say: (line: string) => void;
}

/** Each is started once. */
export class Programs {
  readonly #options: ProgramsOptions;
  #controlPlane: SupervisedProgram | undefined;
  readonly #nodes: SupervisedProgram[] = [];
  #stopping: Promise<void> | undefined;

  constructor(options: ProgramsOptions) {
    this.#options = options;
  }

  /** Resolves if it could not start. */
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

  /** Resolves if it could not start. */
  startNode(node: NodeSettings): Promise<ProgramExit> {
    const { config, tokens, logDir, say } = this.#options;
    const suffix = node === config.nodes[0] ? '' : `-${node.model}`;
    const program = new SupervisedProgram({
      name: nodeName(node),
      main: NODE_MAIN,
      env: { ...nodeEnv(config, node), ...tokens },
      logFile: path.join(logDir, `inference-node${suffix}.log`),
      say,
    });
    this.#nodes.push(program);
    return program.firstExit;
  }

  keepUp(): void {
    for (const program of [this.#controlPlane, ...this.#nodes]) program?.keepUp();
  }

  /** Nodes first: the control plane can then still store what they finish. */
  readonly stop = (): Promise<void> => {
    this.#stopping ??= this.#stopInOrder();
    return this.#stopping;
  };

  readonly hurry = async (): Promise<void> => {
    await Promise.all([this.#controlPlane, ...this.#nodes].map(program => program?.hurry()));
  };

  async #stopInOrder(): Promise<void> {
    await Promise.all(this.#nodes.map(node => node.stop()));
    await this.#controlPlane?.stop();
  }
}

/**
 * Lets callbacks reach this machine, for developers. Unset if others can call the service (by
 * another address or name), because their callbacks must not reach loopback.
 */
const OWN_CALLBACKS = {
  MATTING_ALLOW_HTTP_CALLBACKS: 'true',
  MATTING_ALLOWED_NETWORKS: '127.0.0.0/8,::1/128',
};

function isForThisMachine({ host, baseUrl }: SupervisorConfig): boolean {
  return baseUrl === undefined && /^(127\.|::1$|localhost$)/.test(host);
}

/** Also for the CLI, which needs no token. */
export function controlPlaneEnv(config: SupervisorConfig): Record<string, string> {
  return {
    ...(isForThisMachine(config) ? OWN_CALLBACKS : {}),
    // People who try the service read jobs with curl, a browser or a generated client.
    MATTING_READS_REQUIRE_IDEMPOTENCY_KEY: 'false',
    // Nodes and scraper run on this machine, unless the operator configures another address.
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

export function nodeName({ model }: NodeSettings): string {
  return model === undefined ? 'inference node' : `inference node of ${model}`;
}

/** They apply to the model in `env` only. */
const OF_GIVEN_MODEL = ['MATTING_QUALITY', 'MATTING_PRECISION'];

/**
 * The environment of a program that uses the node's model: a node, or the command that fetches the
 * model.
 */
export function modelEnv(
  { env, modelDir, addedModelsDir }: SupervisorConfig,
  { model }: Pick<NodeSettings, 'model'>,
): Record<string, string> {
  const dirs = { MATTING_MODEL_DIR: modelDir, MATTING_ADDED_MODELS_DIR: addedModelsDir };
  if (model === undefined) return { ...env, ...dirs };
  const others = Object.entries(env).filter(([name]) => !OF_GIVEN_MODEL.includes(name));
  return { ...Object.fromEntries(others), ...dirs, MATTING_MODEL: model };
}

/** Nodes of one machine share its memory and need different ids. */
export function nodeEnv(config: SupervisorConfig, node: NodeSettings): Record<string, string> {
  const { nodes, ports } = config;
  const { MATTING_NODE_ID: id } = config.env;
  const percent = String(Math.floor(100 / nodes.length));
  return {
    ...(nodes.length > 1 && { MATTING_NODE_MEMORY_PERCENT: percent }),
    ...modelEnv(config, node),
    ...(id && node !== nodes[0] && { MATTING_NODE_ID: `${id}-${node.port}` }),
    MATTING_HOST: LOOPBACK,
    MATTING_NODE_PORT: String(node.port),
    MATTING_NODE_HTTP_PORT: String(node.httpPort),
    MATTING_NODE_ADVERTISE_ADDRESS: `${LOOPBACK}:${node.port}`,
    MATTING_REGISTRY_ADDRESS: `${LOOPBACK}:${ports.registry}`,
  };
}
