// The fragments of the page's address: what is open in the drawer has a name, which can be shared.
export const instanceLink = (id) => `#instance:${encodeURIComponent(id)}`;
export const taskLink = (name) => `#task:${encodeURIComponent(name)}`;
export const termLink = (role, token) => `#term:${token}${role ? `@${encodeURIComponent(role)}` : ""}`;

// parse reads a fragment; null: it names nothing.
export function parse(fragment) {
  const found = /^#(instance|task|term):(.+)$/.exec(fragment);
  if (!found) return null;
  try {
    const [, kind, rest] = found;
    if (kind !== "term") return { kind, name: decodeURIComponent(rest) };
    const [token, role = ""] = rest.split("@");
    return { kind, token: Number(token), role: decodeURIComponent(role) };
  } catch {
    return null;
  }
}
