/**
 * `mysql://user:password@host:port/database?...` as mysql2's options. Never puts the URL into an
 * error.
 */
import { readFileSync } from 'node:fs';
import type { PoolOptions, SslOptions } from 'mysql2';

/**
 * Connections a process opens at most. A transaction holds one for some five round trips; at 1 ms
 * each, 16 carry about 3,000 transactions a second, more than one control plane makes.
 */
const CONNECTIONS_DEFAULT = 16;
const CONNECTIONS_MAX = 1_000;

const SSL_MODES = ['DISABLED', 'REQUIRED', 'VERIFY_CA', 'VERIFY_IDENTITY'] as const;
const PARAMETERS = ['ssl-mode', 'ssl-ca', 'ssl-cert', 'ssl-key', 'socket', 'connection-limit'];

/**
 * Parameters, named as MySQL's own clients name them: `ssl-mode` (DISABLED; REQUIRED encrypts,
 * VERIFY_CA checks the certificate, VERIFY_IDENTITY its name too), `ssl-ca`, `ssl-cert`, `ssl-key`
 * (paths), `socket` (a path, instead of host and port), `connection-limit`.
 * @throws Error that says what is wrong with the form, never the value.
 */
export function parseMysqlUrl(databaseUrl: string): PoolOptions {
  const url = parse(databaseUrl);
  const parameters = url.searchParams;
  for (const name of parameters.keys()) {
    if (!PARAMETERS.includes(name)) {
      throw new Error(`the database URL has an unknown parameter; known: ${PARAMETERS.join(', ')}`);
    }
  }
  const database = decode(url.pathname.slice(1));
  if (database === '' || database.includes('/')) {
    throw new Error('the database URL names no database: mysql://user:password@host:3306/database');
  }
  const socket = parameters.get('socket');
  return {
    ...(socket === null
      ? { host: url.hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(url.port || 3306) }
      : { socketPath: socket }),
    user: decode(url.username),
    password: decode(url.password),
    database,
    connectionLimit: connectionLimit(parameters.get('connection-limit')),
    ...sslOptions(parameters),
  };
}

function parse(databaseUrl: string): URL {
  const url = URL.canParse(databaseUrl) ? new URL(databaseUrl) : undefined;
  if (url === undefined || (url.protocol !== 'mysql:' && url.protocol !== 'mariadb:')) {
    throw new Error('the database URL must look like mysql://user:password@host:3306/database');
  }
  return url;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch (error) {
    throw new Error('the database URL has a "%" that is no percent-encoding: write it as %25', {
      cause: error,
    });
  }
}

function connectionLimit(value: string | null): number {
  if (value === null) return CONNECTIONS_DEFAULT;
  const limit = /^\d{1,4}$/.test(value) ? Number(value) : 0;
  if (limit < 1 || limit > CONNECTIONS_MAX) {
    throw new Error(`connection-limit in the database URL must be 1 to ${CONNECTIONS_MAX}`);
  }
  return limit;
}

function sslOptions(parameters: URLSearchParams): { ssl?: SslOptions } {
  const given = parameters.get('ssl-mode')?.toUpperCase() ?? 'DISABLED';
  const mode = SSL_MODES.find(known => known === given);
  if (mode === undefined) {
    throw new Error(`ssl-mode in the database URL must be one of ${SSL_MODES.join(', ')}`);
  }
  if (mode === 'DISABLED') return {};
  const ssl: SslOptions = {
    rejectUnauthorized: mode !== 'REQUIRED',
    verifyIdentity: mode === 'VERIFY_IDENTITY',
    ...pem(parameters, 'ca'),
    ...pem(parameters, 'cert'),
    ...pem(parameters, 'key'),
  };
  return { ssl };
}

function pem(parameters: URLSearchParams, name: 'ca' | 'cert' | 'key'): SslOptions {
  const path = parameters.get(`ssl-${name}`);
  if (path === null) return {};
  try {
    return { [name]: readFileSync(path, 'utf8') };
  } catch (error) {
    throw new Error(`the file named by ssl-${name} in the database URL cannot be read`, {
      cause: error,
    });
  }
}
