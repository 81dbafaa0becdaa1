/**
 * What the supervisor takes from the environment. It reads little: the programs it starts check
 * their own variables; here is what it must know to give each of them its part of one machine.
 */
import path from 'node:path';
import { EnvReader } from '@matting/program/env.ts';

export const ROOT = path.resolve(import.meta.dirname, '..');

export interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
  readonly node: number;
  readonly nodeHttp: number;
}

export interface SupervisorConfig {
  /** Where the REST API listens; everything else of the single machine stays on loopback. */
  readonly host: string;
  readonly ports: Ports;
  /** Absolute. */
  readonly dataDir: string;
  /** Absolute. */
  readonly modelDir: string;
  /** Absolute. */
  readonly addedModelsDir: string;
  readonly nodeToken: string | undefined;
  /** What links start with, without a trailing slash; undefined: the address it listens on. */
  readonly baseUrl: string | undefined;
  /** The environment as given, handed on to the programs. */
  readonly env: Readonly<Record<string, string>>;
}

/** The variable that sets each port, for messages. */
export const PORT_VARIABLES: Readonly<Record<keyof Ports, string>> = {
  http: 'MATTING_PORT',
  registry: 'MATTING_REGISTRY_PORT',
  metrics: 'MATTING_METRICS_PORT',
  node: 'MATTING_NODE_PORT',
  nodeHttp: 'MATTING_NODE_HTTP_PORT',
};

const PORT_DEFAULTS: Readonly<Ports> = {
  http: 8080,
  registry: 50_050,
  metrics: 9464,
  node: 50_051,
  nodeHttp: 50_052,
};

const PORT_MAX = 65_535;

/** @throws ConfigError naming every variable that is not usable. */
export function loadSupervisorConfig(env: NodeJS.ProcessEnv = process.env): SupervisorConfig {
  const reader = new EnvReader(env);
  const dataDir = path.resolve(reader.string('MATTING_DATA_DIR', { default: 'data' }));
  const config: SupervisorConfig = {
    host: reader.string('MATTING_HOST', { default: '127.0.0.1' }),
    ports: readPorts(reader),
    dataDir,
    modelDir: path.resolve(reader.string('MATTING_MODEL_DIR', { default: 'model-cache' })),
    addedModelsDir: path.resolve(
      reader.string('MATTING_ADDED_MODELS_DIR', { default: path.join(dataDir, 'models') }),
    ),
    nodeToken: reader.string('MATTING_NODE_TOKEN', { default: undefined }),
    baseUrl: reader
      .url('MATTING_BASE_URL', { schemes: ['http', 'https'], default: undefined })
      ?.replace(/\/+$/, ''),
    env: Object.fromEntries(
      Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
    ),
  };
  reader.requireValid();
  return config;
}

/** The two programs find each other by these: the system cannot choose one, nor two be the same. */
function readPorts(reader: EnvReader): Ports {
  const read = (name: keyof Ports) =>
    reader.integer(PORT_VARIABLES[name], { min: 1, max: PORT_MAX, default: PORT_DEFAULTS[name] });
  const ports: Ports = {
    http: read('http'),
    registry: read('registry'),
    metrics: read('metrics'),
    node: read('node'),
    nodeHttp: read('nodeHttp'),
  };
  const names = Object.keys(ports) as (keyof Ports)[];
  for (const [index, name] of names.entries()) {
    const other = names.slice(0, index).find(before => ports[before] === ports[name]);
    if (other === undefined) continue;
    reader.problem(PORT_VARIABLES[name], `another port than ${PORT_VARIABLES[other]}`);
  }
  return ports;
}
