/**
 * The supervisor's part of the environment. It reads little, since the programs that it starts
 * check their own variables: only what it needs to give each of them its part of one machine.
 */
import path from 'node:path';
import { EnvReader } from '@matting/program/env.ts';
import {
  PORTS,
  readDataDir,
  readGivenBaseUrl,
  readHost,
  readModelDirs,
  readProfile,
} from '@matting/program/shared-settings.ts';
import { readNodeTokens } from '@matting/program/tokens.ts';

export const ROOT = path.resolve(import.meta.dirname, '..');

export type Ports = Readonly<Record<keyof typeof PORTS, number>>;

export interface SupervisorConfig {
  /** The REST API listens here. Everything else of the single machine stays on loopback. */
  readonly host: string;
  readonly ports: Ports;
  /** Absolute. */
  readonly dataDir: string;
  /** Absolute. */
  readonly modelDir: string;
  /** Absolute. */
  readonly addedModelsDir: string;
  /** Undefined: one is made, unless the programs have it in a file. */
  readonly nodeToken: string | undefined;
  /** Undefined: the node takes what the machine has. */
  readonly profile: 'small' | undefined;
  /** Links start with it. It has no trailing slash. undefined: the address that it listens on. */
  readonly baseUrl: string | undefined;
  /** The environment as given, handed on to the programs. */
  readonly env: Readonly<Record<string, string>>;
}

const PORT_MAX = 65_535;

/** @throws ConfigError naming every variable that is not usable. */
export function loadSupervisorConfig(env: NodeJS.ProcessEnv = process.env): SupervisorConfig {
  const reader = new EnvReader(env);
  const dataDir = readDataDir(reader);
  const config: SupervisorConfig = {
    host: readHost(reader),
    ports: readPorts(reader),
    dataDir,
    ...readModelDirs(reader, dataDir),
    profile: readProfile(reader),
    nodeToken: readNodeTokens(reader).items[0],
    baseUrl: readGivenBaseUrl(reader)?.replace(/\/+$/, ''),
    env: Object.fromEntries(
      Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
    ),
  };
  reader.requireValid();
  return config;
}

/** Where the data and the models lie. None holds a secret. */
const PLACES = ['MATTING_DATA_DIR', 'MATTING_MODEL_DIR', 'MATTING_PROVIDER_DIR'] as const;

/** A command of `matting` that works in another terminal, which lacks these settings. */
export function commandLine({ env }: Pick<SupervisorConfig, 'env'>, command: string): string {
  const places = PLACES.flatMap(name => {
    const place = env[name];
    return place ? [`${name}=${quoted(path.resolve(place))}`] : [];
  });
  const line = [...places, `npm run matting -- ${command}`].join(' ');
  // Its value may hold a password. A shell takes what follows for a comment.
  return env.MATTING_DATABASE_URL ? `${line}   # set MATTING_DATABASE_URL first` : line;
}

/** For a shell of POSIX. */
function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The two programs find each other by these: the system cannot choose one, nor two be the same. */
function readPorts(reader: EnvReader): Ports {
  const read = (name: keyof Ports) => {
    const { variable, ...declared } = PORTS[name];
    return reader.integer(variable, { min: 1, max: PORT_MAX, ...declared });
  };
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
    reader.problem(PORTS[name].variable, `another port than ${PORTS[other].variable}`);
  }
  return ports;
}
