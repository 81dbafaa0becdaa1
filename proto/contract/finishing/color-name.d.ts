declare module 'color-name' {
  /** 0 to 255, by the CSS name in lower case. */
  const colors: Readonly<Record<string, readonly [red: number, green: number, blue: number]>>;
  export default colors;
}
