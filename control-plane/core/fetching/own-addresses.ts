/** This machine's addresses: callers' URLs may not reach them, even where they are public. */
import { networkInterfaces } from 'node:os';

export function interfaceAddresses(): Set<string> {
  const interfaces = Object.values(networkInterfaces()).flatMap(list => list ?? []);
  return new Set(interfaces.map(entry => entry.address));
}
