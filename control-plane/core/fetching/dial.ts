/** Connections to addresses that were checked before: the only place that opens one. */
import { isIP, type LookupFunction, SocketAddress } from 'node:net';
import { buildConnector } from 'undici';

/** Time for one of several addresses; the last gets what is left of the connection's time. */
const CONNECT_ATTEMPT_MS = 1000;

export type Connector = buildConnector.connector;

/**
 * @param addresses checked, in the order to try them; the name is not resolved again
 * @param connectMs for the connection, TLS included
 */
export type CreateConnector = (addresses: readonly string[], connectMs: number) => Connector;

/** The spelling sockets report: an IPv6 address has several. */
function asReported(address: string): string {
  return new SocketAddress({ address, family: isIP(address) === 6 ? 'ipv6' : 'ipv4' }).address;
}

/**
 * Node calls `lookup` for names only: an address as the host is connected to directly, so callers
 * check it before. The certificate is checked against the URL's host in both cases.
 */
export const createPinnedConnector: CreateConnector = (addresses, connectMs) => {
  const answers = addresses.map(address => ({ address, family: isIP(address) }));
  const checked = new Set(addresses.map(asReported));
  const lookup: LookupFunction = (_host, options, callback) => {
    const [first] = answers;
    if (options.all === true) callback(null, answers);
    else if (first !== undefined) callback(null, first.address, first.family);
    else callback(new Error('there is no checked address to connect to'), []);
  };
  const connect = buildConnector({
    lookup,
    timeout: connectMs,
    allowH2: false,
    maxCachedSessions: 0,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: CONNECT_ATTEMPT_MS,
  });
  return (options, callback) => {
    connect(options, (...[error, socket]) => {
      if (error !== null) {
        callback(error, null);
      } else if (socket.remoteAddress === undefined || !checked.has(socket.remoteAddress)) {
        // Only a bug can cause this; nothing is read from the wrong peer.
        socket.destroy();
        callback(new Error('connected to an address that was not checked'), null);
      } else {
        callback(null, socket);
      }
    });
  };
};
