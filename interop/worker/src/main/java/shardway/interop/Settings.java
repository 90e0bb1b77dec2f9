package shardway.interop;

import java.lang.reflect.Method;
import java.util.Map;

/** Sets the library's settings by name, so that one program serves versions that have different ones. */
final class Settings {
    private Settings() {}

    /** {@code path}: the part, then accessors down to the setter of one value. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void set(Map<String, ?> parts, String path, String value) throws ReflectiveOperationException {
        String[] steps = path.split("\\.");
        Object target = parts.get(steps[0]);
        if (target == null || steps.length < 2) {
            throw new IllegalArgumentException("no setting " + path);
        }
        for (int at = 1; at < steps.length - 1; at++) {
            target = target.getClass().getMethod(steps[at]).invoke(target);
        }
        for (Method method : target.getClass().getMethods()) {
            if (!method.getName().equals(steps[steps.length - 1]) || method.getParameterCount() != 1) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            if (type == long.class) {
                method.invoke(target, Long.parseLong(value));
            } else if (type == int.class) {
                method.invoke(target, Integer.parseInt(value));
            } else if (type == boolean.class) {
                method.invoke(target, Boolean.parseBoolean(value));
            } else if (type.isEnum()) {
                method.invoke(target, Enum.valueOf((Class<Enum>) type, value));
            } else {
                continue;
            }
            return;
        }
        throw new IllegalArgumentException("no setting " + path + " that takes a number, true or false, or a name");
    }
}
