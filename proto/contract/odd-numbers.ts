/**
 * Returns where a message has a number that is not finite, below 0 or above the safe integers; each
 * number of an answer of a node is at least 0. Undefined: it has none.
 */
export function oddNumberIn(value: unknown, name = ''): string | undefined {
  if (typeof value === 'number') {
    return value >= 0 && value <= Number.MAX_SAFE_INTEGER ? undefined : name;
  }
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return undefined;
  for (const [key, inner] of Object.entries(value)) {
    const odd = oddNumberIn(inner, name === '' ? key : `${name}.${key}`);
    if (odd !== undefined) return odd;
  }
  return undefined;
}
