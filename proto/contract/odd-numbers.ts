/**
 * The path of a number that is negative, not finite or not safe: invalid in a node's answers.
 * undefined: none.
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
