/** @throws RangeError */
export function at<T>(list: ArrayLike<T>, index: number): T {
  const element = list[index];
  if (element === undefined) throw new RangeError(`nothing at ${index} of ${list.length}`);
  return element;
}
